"""What is measured of a federation."""
