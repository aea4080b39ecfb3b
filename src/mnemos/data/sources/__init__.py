"""Where samples come from: one file a published format."""
