"""The whole description of a run: its fields, overrides, and what differs from a preset."""
