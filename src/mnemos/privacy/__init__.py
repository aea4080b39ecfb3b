"""What is promised about a client's data, and what it costs."""
