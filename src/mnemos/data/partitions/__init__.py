"""One file a partition: how the training samples are dealt out to clients."""
