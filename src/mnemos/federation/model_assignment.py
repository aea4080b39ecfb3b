"""Which client trains which model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mnemos.common import rng
from mnemos.data.partition import Floats, Ints
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.models.mixed import CoDistillation, Mixed, Share
from mnemos.models.model import Model


@dataclass(frozen=True)
class ModelAssignment:
    """The models of a federation, and which client trains which."""

    models: tuple[Model, ...]
    groups: NDArray[np.int16]
    """For each client, the index of its model in `models`: clients with the same model are a group."""
    mixed: bool = False
    """Whether there are several models, or each client has its own."""
    peers: bool = False
    """Whether every client keeps a model of its own."""

    @cached_property
    def branches(self) -> list[int]:
        """The group of each branch of the federation's model; peers have one branch each, sorted by group."""
        return np.sort(self.groups).tolist() if self.peers else list(range(len(self.models)))

    @property
    def owners(self) -> list[int]:
        """The client of each branch, if every client keeps a model of its own; else empty."""
        return np.argsort(self.groups, kind="stable").tolist() if self.peers else []

    @property
    def model(self) -> Model:
        """All models of the federation as one."""
        if len(self.branches) == 1:
            return self.models[0]
        return Mixed(of=tuple(Share(model=self.models[group]) for group in self.branches))

    def clients(self, group: int) -> Ints:
        """The clients of a group."""
        return np.flatnonzero(self.groups == group)

    def name(self, group: int) -> str:
        """The prefix of the names of a group's layers; empty for the only group, and for peers."""
        return "" if len(self.branches) == 1 or self.peers else f"branches.{group}"

    def field(self, group: int) -> str:
        """The field of the experiment that describes a group's model."""
        return f"model.of.{group}.model" if self.mixed else "model"


def assign_models(experiment: Experiment, clients: int) -> ModelAssignment:
    """Which client trains which model; depends on the number of clients, the shares and the seed alone."""
    model = experiment.model.mixture
    if model is None:
        return ModelAssignment((experiment.model,), np.zeros(clients, np.int16))
    least = max(len(model.of), 2)
    if clients < least:
        what = "peers" if len(model.of) == 1 else f"{len(model.of)} models"
        raise ConfigError(f"found {what} and {clients} client(s); allowed: at least {least} clients", "model")
    counts = _apportioned(np.array([share.share for share in model.of]), clients)
    groups = np.repeat(np.arange(len(counts)), counts).astype(np.int16)
    rng.numpy_generator(experiment.seed, "models").shuffle(groups)
    return ModelAssignment(tuple(share.model for share in model.of), groups, True, model.peers)


def exchange_of(experiment: Experiment) -> CoDistillation | None:
    """How models learn from each other; None: they don't."""
    mixture = experiment.model.mixture
    return None if mixture is None else mixture.exchange


def _apportioned(shares: Floats, clients: int) -> Ints:
    """The number of clients for each share: at least one, and the rest by the largest remainders."""
    exact = shares / shares.sum() * clients
    counts: Ints = np.maximum(np.floor(exact + 1e-9).astype(np.int64), 1)
    while counts.sum() != clients:
        missing = exact - counts
        if counts.sum() < clients:
            counts[missing.argmax()] += 1
        else:  # a model with a share below one client has one: the model most above its share gives it
            counts[np.where(counts > 1, missing, np.inf).argmin()] -= 1
    return counts
