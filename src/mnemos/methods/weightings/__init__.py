"""Weightings that several methods use; others are in presets. See `methods.part.Weighting`."""
