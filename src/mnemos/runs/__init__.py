"""A run's directory: metrics, checkpoints, resume."""
