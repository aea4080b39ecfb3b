"""A model's weights before the first round."""
