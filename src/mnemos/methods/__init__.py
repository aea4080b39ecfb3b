"""Published methods, one file each: a preset of parts, and the parts that only it needs."""
