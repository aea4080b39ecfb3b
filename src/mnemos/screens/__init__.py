"""Screens: which updates are rejected before they enter the aggregate."""
