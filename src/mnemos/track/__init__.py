"""Sinks: files and services that get a run's numbers, beside the run's own directory."""
