"""Executions: how the forward pass of a model runs under an unchanged ``generate``."""
