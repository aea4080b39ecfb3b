"""Fuzzing of everything that reads from outside: a result or a clean error, whatever the input."""
