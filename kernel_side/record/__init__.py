"""Measures, per-token text, the record of a run and its exports."""
