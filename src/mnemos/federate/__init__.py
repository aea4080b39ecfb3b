"""The same experiment where the data is: owners join over Flower, and what they hold stays with them."""
