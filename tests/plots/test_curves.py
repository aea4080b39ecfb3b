"""Curves of several groups of runs in one figure."""

from itertools import pairwise

from mnemos.plots.curves import line_style


def test_thirty_two_curves_differ() -> None:
    styles = [line_style(place) for place in range(32)]
    assert len(set(styles)) == 32
    assert all(a[0] != b[0] and a[1] != b[1] for a, b in pairwise(styles[:8]))
