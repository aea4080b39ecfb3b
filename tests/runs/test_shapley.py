"""Shapley values by hand, exact and from random orders."""

import numpy as np
import pytest

from mnemos.runs.why.shapley import shapley

GLOVES = {frozenset(s): 0.0 for s in [(), (0,), (1,), (2,), (0, 1)]} | {
    frozenset(s): 1.0 for s in [(0, 2), (1, 2), (0, 1, 2)]
}
"""Clients 0 and 1 have a left glove each, client 2 a right one; a pair is worth 1."""


def test_by_hand():
    """In the 6 orders, client 2 completes the pair in 4, client 0 in 1 (2 0 1), client 1 in 1 (2 1 0)."""
    values, errors = shapley(
        [0, 1, 2], lambda s: np.array([GLOVES[s], 2 * GLOVES[s]]), 9, np.random.default_rng(0)
    )
    assert values[:, 0] == pytest.approx([1 / 6, 1 / 6, 4 / 6])
    assert values[:, 1] == pytest.approx([2 / 6, 2 / 6, 8 / 6])
    assert not errors.any()


def test_random_orders():
    """Seven clients, of whom all, and only all, of 0, 1 and 2 are worth 3: a value of 1 for each of them.

    A client is the last of the three in a third of the orders, then it gains 3: its variance is 2, and the
    standard error of 200 orders 0.1. Values of every order sum to 3, and client 6 never gains.
    """
    calls = []

    def value(group):
        calls.append(group)
        return np.array([3.0 * ({0, 1, 2} <= group)])

    values, errors = shapley(range(7), value, 200, np.random.default_rng(1))
    assert values.sum() == pytest.approx(3)
    assert values[:3, 0] == pytest.approx([1, 1, 1], abs=0.3)
    assert not values[3:].any()
    assert errors[:3, 0] == pytest.approx([0.1, 0.1, 0.1], abs=0.01)
    assert len(calls) == len(set(calls))
