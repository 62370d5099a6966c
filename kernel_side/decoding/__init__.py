"""How decoding loops are observed and made reproducible.

``observe`` is the public face; ``tap`` alone touches private names of ``transformers``; ``randomness`` gives a run a
generator of its own. Which settings exist is said in :mod:`genscope.kernel_side.request`.
"""
