"""Clocks: when updates are applied, and how long clients take in simulated time."""
