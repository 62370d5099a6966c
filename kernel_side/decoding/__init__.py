"""How decoding loops are observed and made reproducible, and loops that the library lacks.

``observe`` is the public face; ``dispatch`` picks the tap of a strategy; ``tap`` and its siblings watch the library's
loops; ``randomness`` gives a run a generator of its own. ``contrastive``, ``dola`` and ``diverse_beam`` are loops of
our own, with ``own_loop``, ``forward`` and ``returned`` in common. Private names of ``transformers`` are touched by the
taps, ``own_loop`` and ``forward`` alone. Which settings exist is said in :mod:`genscope.kernel_side.request`.
"""
