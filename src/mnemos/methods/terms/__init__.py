"""Terms that several methods add to what a client minimises."""
