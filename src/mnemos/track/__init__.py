"""Sinks: other places than its directory where a run's numbers can be sent."""
