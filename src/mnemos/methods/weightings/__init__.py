"""Weightings that belong to no single method. The interface is `methods.part.Weighting`."""
