"""Layouts for vectors that aren't a model's."""

from mnemos.vector import Kind, Layout, Slot


def flat(size: int) -> Layout:
    """One tensor that is the whole vector."""
    return Layout((Slot("w", (size,), 0, Kind.OTHER),), ())
