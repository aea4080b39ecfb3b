"""Every table and figure of the papers again: recipes, their scaling, and ours beside the papers' numbers."""
