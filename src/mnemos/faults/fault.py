"""The interface of faults, and where they are found by name."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from mnemos import rng
from mnemos.data.partition import Ints
from mnemos.message import Task
from mnemos.methods.exchange import State, Update
from mnemos.registry import Part, Registry

MEMORY = "faults."
"""What bad clients remember has names that start like this; it is kept with the server's state."""


class Fault(Part):
    """Something that goes wrong at clients."""

    def vanishes(self, client: int, round: int, seed: int, attempt: int) -> bool:
        """Whether a client is never heard of again in a round, or in another attempt at it."""
        return False


class Pretence(Fault):
    """Some clients never train, and send something else for an update."""

    @abstractmethod
    def pretenders(self, population: int, seed: int) -> Ints:
        """Those clients, for the whole run."""

    @abstractmethod
    def pretend(self, task: Task, last: Tensor) -> Tensor:
        """What such a client sends for its update; `last` is the global model's last change, 0 at first."""


class Tampering(Fault):
    """Some clients train, and send something else than what they have learnt."""

    @abstractmethod
    def tamperers(self, population: int, seed: int) -> Ints:
        """Those clients, for the whole run."""

    def relabel(self, classes: int) -> Tensor | None:
        """Which class they take each class for when they train; None: they know their labels."""
        return None

    @abstractmethod
    def tamper(self, update: Update, memory: State) -> Update:
        """What such a client sends; it may add to the memory, under names that tell of fault and client."""


faults: Registry[Fault] = Registry("fault", Fault, "mnemos.faults")


def some(share: float, population: int, seed: int, purpose: str) -> Ints:
    """A share of the clients, at least one, drawn once a run."""
    count = max(1, round(share * population))
    drawn: Ints = rng.numpy_generator(seed, purpose).choice(population, count, replace=False)
    return drawn
