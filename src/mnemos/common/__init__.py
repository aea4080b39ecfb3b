"""Small helpers that every room may use: registries, errors as sentences, files, random numbers."""
