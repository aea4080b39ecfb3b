"""How a round proceeds: the server waits for a cohort, or moves whenever enough updates have arrived."""
