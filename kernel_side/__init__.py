"""Watch a model decode: requests, runs, streamers and records, without anything of Jupyter."""
