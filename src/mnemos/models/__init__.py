"""Models: any `nn.Module` that maps a batch of samples to logits, and a handful of ready-made ones."""
