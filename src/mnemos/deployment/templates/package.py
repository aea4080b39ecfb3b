"""A federation of Mnemos as an app of Flower."""
