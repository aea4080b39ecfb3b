"""What a federation's rounds are made of: who takes part, what arrives, and what becomes of it."""
