"""Data sources, one file per published format."""
