"""What a person sees of a run while it goes on: a progress bar on a terminal, plain lines elsewhere."""
