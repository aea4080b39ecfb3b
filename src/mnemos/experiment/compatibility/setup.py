"""What is known of a model, its clients and their data before they train."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import nn

from mnemos.client.trainer import has_batch_norm
from mnemos.data.dataset import Dataset
from mnemos.data.partition import Assignment, Floats, Ints, held_by
from mnemos.data.stream import Flow
from mnemos.experiment.experiment import Experiment
from mnemos.optim.local import Local
from mnemos.vector import Layout


@dataclass(frozen=True)
class Setup:
    """One of a federation's models, the clients that train it, and their data."""

    experiment: Experiment
    local: Local
    dataset: Dataset
    flow: Flow
    module: nn.Module
    members: Ints
    """The clients that have the model."""
    takes: int
    """How many updates the server takes for a round, of all models."""
    field: str = "model"
    """Where in the experiment the model is described."""

    @cached_property
    def layout(self) -> Layout:
        """The module's parameters and buffers."""
        return Layout.of(self.module)

    @cached_property
    def batch_norm(self) -> bool:
        """Whether the module has layers of batch-norm."""
        return has_batch_norm(self.module)

    @cached_property
    def held(self) -> Assignment:
        """What its clients hold; all others hold nothing."""
        everyone = self.flow.assignment
        return everyone if len(self.members) == everyone.clients else held_by(self.members, everyone)

    @cached_property
    def loads(self) -> Ints:
        """How many samples its clients have to train on at a time, as in `Flow.loads`."""
        return self.flow.loads() * (self.held.sizes > 0)[:, None]

    @property
    def idle(self) -> int:
        """How many of its clients hold no training sample."""
        return int(np.count_nonzero(self.held.train_sizes()[self.members] == 0))

    @property
    def lonely(self) -> Ints:
        """Its clients that have one training sample at a time, at some time."""
        return np.flatnonzero((self.loads == 1).any(axis=1))

    @property
    def batches(self) -> Floats:
        """How many batches a pass over its clients' samples has, of those that have any."""
        found: Floats = np.ceil(self.loads[self.loads.max(axis=1) > 0] / self.local.batch)
        return found

    @property
    def updates(self) -> float:
        """How many updates of the model a round has, on average."""
        able = np.count_nonzero(self.held.train_sizes())
        return float(self.takes * (able / np.count_nonzero(self.flow.assignment.train_sizes())))
