"""Images of fractals: one iterated function system per class, and any number of images of it."""

from mnemos.data.fractals.images import HELD_OUT, Fractals, Ground

__all__ = ["HELD_OUT", "Fractals", "Ground"]
