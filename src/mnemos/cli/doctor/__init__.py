"""`mnemos doctor`: what is installed and what the machine has, a module for each concern."""
