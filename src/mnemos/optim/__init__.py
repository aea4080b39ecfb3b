"""Optimisers on the parameter vector."""
