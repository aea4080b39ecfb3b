"""Partitions, one file each: how the training samples are assigned to clients."""
