"""Figures by matplotlib: curves, heat-maps, partitions, timelines."""
