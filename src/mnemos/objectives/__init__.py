"""Objectives: the losses that a client minimises."""
