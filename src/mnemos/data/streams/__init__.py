"""Streams, one file each: how the samples that a client holds change from round to round."""
