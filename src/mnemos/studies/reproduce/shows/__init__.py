"""Ways to show a recipe's results, one file each."""
