"""Robust rules: how a round's updates become one when some of them are bad."""
