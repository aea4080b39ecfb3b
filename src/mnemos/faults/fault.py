"""The interface of faults, and where they are found by name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from torch import Tensor

from mnemos.client.messages import TrainRequest
from mnemos.common import rng
from mnemos.common.registry import Part, Registry
from mnemos.data.partition import Ints
from mnemos.data.trigger import Mark, Trigger
from mnemos.methods.exchange import State, TrainReply
from mnemos.vector import Layout

MEMORY = "faults."
"""Prefix of the names under which the server's state keeps what attackers remember."""


class Fault(Part):
    """A fault of some clients: they fail, or they attack."""

    trains: ClassVar[bool] = True
    """Whether its clients train, even if they send something else afterwards."""
    falsifies: ClassVar[bool] = False
    """Whether its clients send a server something else than what they have learnt; peers have no server."""
    attacks: ClassVar[bool] = False
    """Whether its clients are the attackers, which are the same for all such faults."""
    in_step: ClassVar[bool] = False
    """Whether all clients of a round must start from the same model, which asynchronous ones don't."""

    several: ClassVar[bool] = False
    """Whether an experiment can have it more than once, such as for other clients in other rounds."""

    @property
    def mark(self) -> Mark | None:
        """The mark that opens the backdoor, if the fault plants one."""
        return None

    def clients(self, population: int, seed: int) -> Ints:
        """The clients that have the fault, for the whole run; none: it can hit any client."""
        return np.zeros(0, np.int64)

    def vanishes(self, client: int, round: int, seed: int, attempt: int) -> bool:
        """Whether a client drops out of an attempt at a round; the first attempt is 0."""
        return False

    def check_population(self, clients: int) -> None:
        """Raise a `ConfigError` if it names a client that isn't one of this many."""

    def check(self, layout: Layout, beside: State, classes: int) -> None:
        """Raise a `ConfigError` for an experiment in which it has no effect.

        `beside`: examples of what clients upload beside the model.
        """


class Pretence(Fault):
    """Some clients never train, and send a made-up update."""

    trains: ClassVar[bool] = False
    falsifies: ClassVar[bool] = True
    in_step: ClassVar[bool] = True

    @abstractmethod
    def pretend(self, request: TrainRequest, last: Tensor, layout: Layout) -> Tensor:
        """The update that such a client sends; `last` is the global model's last change, 0 at first."""


class Tampering(Fault):
    """Some clients train, and change their update before they send it."""

    falsifies: ClassVar[bool] = True
    attacks: ClassVar[bool] = True

    def label_map(self, classes: int) -> Tensor | None:
        """The class that they train on instead of each class [classes]; None: their labels are right."""
        return None

    @abstractmethod
    def tamper(self, update: TrainReply, memory: State, layout: Layout) -> TrainReply:
        """The update that such a client sends; it may add to the memory, under names of fault and client."""


class Collusion(Fault):
    """Some clients train, see the round's updates, and agree on what they send."""

    falsifies: ClassVar[bool] = True
    attacks: ClassVar[bool] = True
    in_step: ClassVar[bool] = True

    @property
    def trigger(self) -> Trigger | None:
        """The mark that they put on some of their samples; None: they train on unmarked samples."""
        return None

    @property
    def mark(self) -> Mark | None:
        """That of the trigger."""
        return self.trigger

    @abstractmethod
    def collude(
        self, own: Sequence[TrainReply], honest: Sequence[TrainReply], memory: State
    ) -> list[TrainReply]:
        """The updates that they send instead of their own ones, in the same order.

        `own` has at least one update, and `honest` the round's other ones; all are finite and have the
        model's shape. Something may be added to the memory, under names that begin with the fault's.
        """


faults: Registry[Fault] = Registry("fault", Fault, "mnemos.faults")


ATTACKERS = "attack"
"""The purpose of the draw of attackers, the same for all attacks, so that all choose the same clients."""


def some(share: float, population: int, seed: int, purpose: str) -> Ints:
    """A share of the clients, at least one, drawn once for the run."""
    count = max(1, round(share * population))
    drawn: Ints = rng.numpy_generator(seed, purpose).choice(population, count, replace=False)
    return drawn
