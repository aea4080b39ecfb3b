"""Clients that misbehave, to see what a federation makes of them."""
