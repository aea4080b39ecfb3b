"""Published methods, one a file, with the parts that are theirs."""
