"""Advice on a federation: what it is like, short pilots of methods, and which of them to take."""
