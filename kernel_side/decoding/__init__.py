"""How decoding loops are observed and made reproducible, and loops that the library lacks.

``observe`` and ``model_view`` are the public face; ``dispatch`` picks the tap of a strategy; ``tap`` and its siblings
watch the library's loops; ``randomness`` gives a run a generator of its own. ``contrastive``, ``dola`` and
``diverse_beam`` (with ``beam_group``) are loops of our own, with ``own_loop``, ``forward`` and ``returned`` in common.
Private names of ``transformers`` are touched by the taps, ``model_view``, ``own_loop`` and ``forward`` alone. Which
settings exist is said in :mod:`genscope.kernel_side.request`.
"""
