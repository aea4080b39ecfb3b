"""Published methods, one per file, each with its own parts."""
