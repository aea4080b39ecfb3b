"""One client's round: its workload, its steps, and the messages that carry them."""
