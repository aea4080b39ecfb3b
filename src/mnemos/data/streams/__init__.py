"""One file a stream: how the samples that a client holds change from round to round."""
