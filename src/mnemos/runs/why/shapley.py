"""Shapley values: each client's share in what a round led to (Shapley, 1953).

Client k's value is its marginal contribution v(S ∪ {k}) − v(S), averaged over all orders in which updates of
the cohort could come in, where S are those before it and v(S) is the accuracy of the round aggregated from S
alone. The values of a cohort sum to v(cohort) − v(∅), the round's change. Of large cohorts, some orders
are drawn (Castro, Gómez, Tejada, 2009, "Polynomial calculation of the Shapley value based on sampling").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import comb

import numpy as np

from mnemos.data.partition import Floats

Value = Callable[[frozenset[int]], Floats]
"""The values of a set of clients, such as accuracy and loss of the model that they lead to [values]."""

EXACT = 6
"""In cohorts of up to this many clients, all sets are looked at, and the values are exact."""


def shapley(
    clients: Sequence[int], value: Value, orders: int, generator: np.random.Generator
) -> tuple[Floats, Floats]:
    """(the Shapley values of each client, their standard errors), both [clients, values].

    `orders` random orders are drawn with `generator`, at least two, unless the cohort is so small that the
    values are exact and the errors 0. `value` is called once for each set.
    """
    known: dict[frozenset[int], Floats] = {}

    def of(group: frozenset[int]) -> Floats:
        if group not in known:
            known[group] = value(group)
        return known[group]

    if len(clients) <= EXACT:
        exact = np.stack([_exact(client, clients, of) for client in clients])
        return exact, np.zeros_like(exact)
    count = max(orders, 2)
    gains = np.zeros((count, len(clients), len(of(frozenset()))))
    for order in range(count):
        before, group = of(frozenset()), frozenset[int]()
        for index in generator.permutation(len(clients)).tolist():
            group |= {clients[index]}
            gains[order, index] = of(group) - before
            before = of(group)
    error: Floats = gains.std(axis=0, ddof=1) / np.sqrt(count)
    return gains.mean(axis=0), error


def _exact(client: int, clients: Sequence[int], value: Value) -> Floats:
    """φ = Σ over sets S of the others of [v(S ∪ {client}) − v(S)] / (K · C(K − 1, |S|))."""
    others = [other for other in clients if other != client]
    total: Floats = np.zeros_like(value(frozenset()))
    for size in range(len(clients)):
        sets = [frozenset(chosen) for chosen in combinations(others, size)]
        gained = sum(value(group | {client}) - value(group) for group in sets)
        total = total + gained / (len(clients) * comb(len(others), size))
    return total
