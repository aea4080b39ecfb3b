"""What a model starts from."""
