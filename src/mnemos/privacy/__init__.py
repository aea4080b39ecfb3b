"""Differential privacy: the mechanism that protects a client's data, and the accountant of its cost."""
