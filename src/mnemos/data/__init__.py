"""Where samples come from and who holds which."""
