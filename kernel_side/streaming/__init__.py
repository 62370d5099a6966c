"""Step outputs and the streamers that carry them, for runs and for plain scripts.

``outputs`` says what travels, ``base`` what a streamer is, ``channel`` hands outputs between threads, ``iterate`` and
``text`` are the streamers that people read from.
"""
