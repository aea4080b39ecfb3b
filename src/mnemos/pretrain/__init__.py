"""Pre-training of an encoder on fractals, before a federation starts."""
