"""Training with data owners on other machines, who join over Flower and keep their data."""
