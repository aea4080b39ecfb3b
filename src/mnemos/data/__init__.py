"""Data sets, and which client holds which samples in which round."""
