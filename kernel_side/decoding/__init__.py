"""How decoding loops are observed and made reproducible.

``observe`` is the public face; ``dispatch`` picks the tap of a strategy; ``tap`` and its siblings alone touch private
names of ``transformers``; ``randomness`` gives a run a generator of its own. Which settings exist is said in
:mod:`genscope.kernel_side.request`.
"""
