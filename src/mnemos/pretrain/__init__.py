"""Training an encoder on fractals, before any federation."""
