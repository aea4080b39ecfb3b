"""What tests share: small experiments and data, processes, and ways for both to go wrong."""
