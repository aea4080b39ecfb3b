"""Federations small enough to be worked out on paper, and a small real one.

A sample of label y has the loss ½ h_y |w − a_y|², so its gradient is h_y (w − a_y) and a step of size η
takes w − a_y to (1 − η h_y) (w − a_y). As a rule client k has samples of label k alone, and w is one number
that starts at 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mnemos.data.dataset import Dataset, Source, Split
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.objectives.objective import Objective
from support.play import each_round


class Parabolas(Source):
    """The constant input 1, and for each client the labels of its samples."""

    labels: tuple[tuple[int, ...], ...]

    def load(self) -> Dataset:
        pairs = [(label, client) for client, labels in enumerate(self.labels) for label in labels]
        labels, owners = torch.tensor(pairs).T
        split = Split(torch.ones(len(pairs), 1), labels, owners)
        classes = tuple(str(label) for label in range(int(labels.max()) + 1))
        names = tuple(str(client) for client in range(len(self.labels)))
        return Dataset("parabolas", split, split, classes, (0.0,), (1.0,), names)


class Point(nn.Module):
    """w [d] at 0, given as the first d of the logits; the others are 0."""

    def __init__(self, classes: int, size: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(size))
        self._rest = classes - size

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.pad(x * self.w, (0, self._rest))


class Parabola(Objective):
    """½ h_y |w − a_y|²."""

    h: tuple[float, ...]
    a: tuple[tuple[float, ...], ...]

    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        h, a = torch.tensor(self.h)[labels], torch.tensor(self.a)[labels]
        return h / 2 * (logits[:, : a.shape[1]] - a).square().sum(1)


@dataclass(frozen=True)
class Played:
    """What the rounds of a federation left behind, one tensor a round."""

    model: list[Tensor]
    server: list[dict[str, Tensor]]
    clients: list[list[dict[str, Tensor]]]

    @property
    def models(self) -> list[float]:
        """The model after each round, all numbers one after the other."""
        return torch.cat(self.model).tolist()

    def at_server(self, name: str) -> list[float]:
        """A state of the server after each round."""
        return torch.cat([state[name] for state in self.server]).tolist()

    def at_client(self, client: int, name: str) -> list[float]:
        """What a client remembers after each round."""
        return torch.cat([states[client][name] for states in self.clients]).tolist()


def near(values: Sequence[float]) -> object:
    """Equal but for the rounding of float32."""
    return pytest.approx(values, rel=1e-5, abs=1e-6)


def play(
    method: dict,
    local: dict,
    *,
    h: Sequence[float],
    a: Sequence[float | Sequence[float]],
    samples: Sequence[int] | None = None,
    labels: Sequence[Sequence[int]] | None = None,
    cohorts: Sequence[Sequence[int]] | None = None,
    rounds: int = 3,
    clock: dict | str = "rounds",
) -> Played:
    """Rounds of a method on parabolas.

    Client k has `samples[k]` samples of label k (1 unless told), or those of `labels[k]`. All clients are in
    all rounds, or those of `cohorts`.
    """
    points = [list(point) if isinstance(point, Sequence) else [point] for point in a]
    if labels is None:
        labels = [[label] * count for label, count in enumerate(samples or [1] * len(h))]
    experiment = Experiment.parse(
        {
            "data": Parabolas(labels=labels),
            "partition": {"name": "natural", "validation": 0},
            "model": {"name": "support.quadratic:Point", "options": {"size": len(points[0])}},
            "method": {**method, "loss": Parabola(h=h, a=points)},
            "local": local,
            "participation": len(cohorts[0]) / len(labels) if cohorts else 1.0,
            "rounds": rounds,
            "evaluate": {"test_last": 0},
            "engine": "serial",
            "clock": clock,
        }
    )
    federation = Federation(experiment)
    if cohorts:
        federation.population.cohort = lambda number: np.array(cohorts[number - 1])
    played = Played([], [], [])
    fresh = federation.method.client_state(federation.layout)
    for _ in each_round(federation):
        states = federation.client_states
        played.model.append(federation.server.model)
        played.server.append(federation.server.state)
        kept = {client: states[client] for client in range(len(labels)) if client in states}
        played.clients.append([kept.get(client, fresh) for client in range(len(labels))])
    return played


def digits(method: dict | str, count: int, **changes: object) -> tuple[Federation, list[Tensor]]:
    """A federation of handwritten digits after some rounds, and its model after each of them."""
    experiment = Experiment.parse(
        {
            "data": "digits",
            "partition": {"name": "label-dirichlet", "clients": 6, "alpha": 0.5},
            "model": {"name": "mlp", "hidden": [8]},
            "method": method,
            "participation": 0.5,
            "rounds": count,
            "evaluate": {"every": count, "test_last": 0},
            "engine": "serial",
            **changes,
        }
    )
    federation = Federation(experiment)
    return federation, [federation.server.model for _ in each_round(federation)]


def on_digits(method: dict | str, rounds: int = 2, **local: object) -> list[Tensor]:
    """The model after each round of a method on handwritten digits; three of six unequal clients a round."""
    return digits(method, rounds, local=local)[1]
