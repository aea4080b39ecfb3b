"""Which updates are put aside before they touch the aggregate."""
