"""What one client minimises."""
