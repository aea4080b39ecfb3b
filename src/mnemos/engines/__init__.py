"""How a cohort runs."""
