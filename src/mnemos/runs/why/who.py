"""Who did it: each client's share in what a round did to a class or a task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mnemos.common import rng
from mnemos.data.partition import Floats
from mnemos.runs.why.samples import Samples
from mnemos.runs.why.shapley import shapley
from mnemos.runs.why.what_if import WhatIf

LARGEST = 20
"""Shapley values are computed for cohorts of up to this many clients."""


@dataclass(frozen=True)
class Share:
    """A client's share in what a round did to the accuracy on some samples."""

    round: int
    client: int
    held: int
    """How many training samples of the class or task the client has in the round."""
    change: float
    """The round's change of accuracy without the client's update."""
    leave_one_out: float
    """What its update has cost: the accuracy without it − the accuracy with it."""
    leave_one_out_loss: float
    """The same of the loss: with it − without it."""
    shapley: float | None = None
    """What it has cost by its Shapley value; None if the cohort is too large, or it wasn't asked for."""
    error: float | None = None
    """The standard error of `shapley`; 0 if it is exact."""
    shapley_loss: float | None = None
    """What it has cost in the loss, by its Shapley value."""
    slope: float | None = None
    """⟨∇L, Δ⟩: the loss's first-order change by the update alone; None if clients have several models."""

    @property
    def cost(self) -> tuple[float, float]:
        """What clients are ranked by: the cost in accuracy, then in loss; Shapley values if known."""
        if self.shapley is None or self.shapley_loss is None:
            return self.leave_one_out, self.leave_one_out_loss
        return self.shapley, self.shapley_loss


def shares(what_if: WhatIf, samples: Samples, orders: int = 20, seed: int = 0) -> list[Share]:
    """The shares of a round's clients, the costliest first.

    `orders`: how many random orders are drawn for Shapley values in cohorts of more than six; 0: none are
    computed.
    """
    cohort, count, round = what_if.cohort, samples.count, what_if.round
    before, after = samples.score(what_if.before), samples.score(what_if.after)

    def value(clients: frozenset[int]) -> Floats:
        score = samples.score(what_if.among(clients))
        return np.array([score.right / count, score.loss])

    values = errors = None
    if orders and 0 < len(cohort) <= LARGEST:
        values, errors = shapley(cohort, value, orders, rng.numpy_generator(seed, "why", round))
    gradient = samples.gradient(what_if.before[0])
    found = []
    for index, client in enumerate(cohort):
        without, reply = samples.score(what_if.without(client)), what_if.runner.known(client)
        slope = None if gradient is None or reply is None else float(gradient @ reply.delta)
        found.append(
            Share(
                round,
                client,
                samples.held_by(client, round),
                (without.right - before.right) / count,
                (without.right - after.right) / count,
                after.loss - without.loss,
                None if values is None else -float(values[index, 0]),
                None if errors is None else float(errors[index, 0]),
                None if values is None else float(values[index, 1]),
                slope,
            )
        )
    return sorted(found, key=lambda share: share.cost, reverse=True)
