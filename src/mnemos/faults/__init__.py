"""Faults: simulated clients that fail or attack."""
