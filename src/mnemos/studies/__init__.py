"""Many runs: comparisons, sweeps, estimates, and the papers' tables and figures."""
