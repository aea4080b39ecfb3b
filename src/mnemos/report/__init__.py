"""Reports of runs: panels make blocks of them, and pages, figures and tables are drawn from blocks."""
