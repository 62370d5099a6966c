"""Reuse of keys and values between runs: the prefix cache, its leases, and what may share it."""
