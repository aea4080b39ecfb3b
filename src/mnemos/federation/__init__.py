"""The round: select, train, screen, aggregate, step, evaluate, record."""
