"""Optimisers on the parameter vector, and schedules of the learning rate."""
