"""Multi-turn text with tools: a model writes, calls tools, reads their answers and goes on.

``environment`` is the public face, ``playing`` its turns. ``history`` is what came of it, ``segments`` tells it live,
``display`` draws it. The model's side: ``batches`` and ``turn`` generate, ``stopping`` and ``watching`` end and count
rows, ``prefixes`` takes their KV from a prefix cache. The environment's side: ``tags`` and ``chat`` are two ways to
call tools, ``tools`` calls them, ``answering`` makes a segment of the answers, ``ending`` says when a history is over,
``rewards`` asks what it was worth. ``new_tokens`` turns what is new into ids.
"""
