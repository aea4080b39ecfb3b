"""How a cohort runs: the interface of all engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, NoReturn, Self

from pydantic import Field

from mnemos.data.dataset import Dataset
from mnemos.errors import MnemosError
from mnemos.message import Arithmetic, Plan, Task
from mnemos.methods.exchange import Update
from mnemos.registry import Part, Registry

ENOUGH = "enough others"
"""Why a client is lost that was asked in case others don't answer."""


@dataclass(frozen=True)
class Work:
    """How much there is to do, for engines that choose."""

    cohort: int
    """Clients that a round takes."""
    rounds: int


class Lost(NamedTuple):
    """A client that was to train, and of which nothing can be expected any more."""

    client: int
    reason: str
    """In a few words, for the record: `timeout`, `worker died`."""


class Runner(ABC):
    """An opened engine: runs one cohort after another until it is closed."""

    def __init__(self, engine: Engine, plan: Plan) -> None:
        self.engine = engine
        """The engine in use, for the run's record: what `resume` opens again."""
        self.plan = plan
        """The plan with the arithmetic in use; tasks carry it."""
        self.why = ""
        """Why this engine was taken, if there was a choice."""

    @abstractmethod
    def run(self, cohort: Iterable[Task]) -> Iterator[Update | Lost]:
        """The updates of a cohort, in the cohort's order, each as soon as its turn has come."""

    def close(self) -> None:
        """Let go of threads and memory."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Engine(Part):
    """A choice of engine."""

    any_plan: ClassVar[bool] = False
    """Whether one runner takes tasks of any plan, and not of the one alone that it was opened with."""

    exact: bool = Field(False, description="stay with the reference arithmetic: bit-identical results")

    @abstractmethod
    def open(self, plan: Plan, dataset: Dataset, work: Work) -> Runner:
        """Make replicas and pools."""

    def arithmetic(self) -> Arithmetic:
        """What this engine does to the last bits."""
        return Arithmetic()


engines: Registry[Engine] = Registry("engine", Engine, "mnemos.engines")


class ClientError(RuntimeError):
    """An unexpected error inside a client's round: says which client and round, and keeps the cause."""


def blame(task: Task, error: Exception) -> NoReturn:
    """Re-raise what went wrong in a client's round as an error that names it."""
    if isinstance(error, MnemosError):
        raise error
    raise ClientError(
        f"client {task.client} failed in round {task.round}: {type(error).__name__}: {error}"
    ) from error
