"""The interface of engines, which train the clients of a cohort."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

import torch
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from mnemos.client.messages import Arithmetic, Plan, TrainRequest
from mnemos.client.precision import check_precision
from mnemos.common.devices import CPU
from mnemos.common.registry import Part, Registry
from mnemos.data.dataset import Dataset
from mnemos.errors import MnemosError
from mnemos.measures.evaluate import Judge
from mnemos.methods.exchange import TrainReply
from mnemos.methods.replies import TrainReplies

ENOUGH = "enough others"
"""The reason on record for a client that wasn't waited for, because enough others had answered."""


@dataclass(frozen=True)
class Work:
    """The amount of work, by which engines decide how many workers they need."""

    cohort: int
    """The number of clients in a round."""
    rounds: int


class Lost(NamedTuple):
    """A client that was asked to train and won't send an update."""

    client: int
    reason: str
    """The reason in a few words, for the run's metrics: `timeout`, `worker died`."""


class InBlocks(Iterator[TrainReply | Lost]):
    """Replies one by one, which also come in blocks: those of many clients that were trained at once."""

    def __init__(self, blocks: Iterator[TrainReplies | Lost]) -> None:
        self.blocks = blocks
        self._single = (
            reply for block in blocks for reply in ([block] if isinstance(block, Lost) else block)
        )

    def __next__(self) -> TrainReply | Lost:
        return next(self._single)


def in_blocks(replies: Iterator[TrainReply | Lost]) -> Iterator[TrainReplies | Lost]:
    """The replies of a runner in blocks, as large as they come."""
    if isinstance(replies, InBlocks):
        return replies.blocks
    return (reply if isinstance(reply, Lost) else TrainReplies([reply]) for reply in replies)


class Runner(ABC):
    """An opened engine, which runs one cohort after another until it is closed."""

    def __init__(self, engine: Engine, plan: Plan) -> None:
        self.engine = engine
        """The engine in use, which the run records and `resume` opens again."""
        self.plan = plan
        """The plan with the arithmetic in use, for requests."""
        self.why = ""
        """Why this engine was chosen, if there was a choice."""
        self.choosing = 0.0
        """Seconds that it took to choose the engine, which are no part of a round."""

    @abstractmethod
    def run(self, cohort: Iterable[TrainRequest]) -> Iterator[TrainReply | Lost]:
        """Train the clients of a cohort, and yield an update or a loss for each, in the cohort's order.

        An engine that trains many clients at once returns an `InBlocks`.
        """

    def agree(self, others: Sequence[Engine]) -> None:
        """Go on like the runners of other models, which use the same engine with these options.

        They may have found out for themselves how many clients fit into memory.
        """

    def evaluator(self, dataset: Dataset) -> Judge | None:
        """Evaluates models where the clients' samples are; None: the samples are in this process."""
        return None

    def close(self) -> None:
        """Release threads and memory."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Engine(Part):
    """An engine and its options."""

    any_plan: ClassVar[bool] = False
    """Whether a runner takes requests with any plan, and not only with the plan that it was opened with."""
    remote: ClassVar[bool] = False
    """Whether clients train where their owners' data is."""
    devices_elsewhere: ClassVar[bool] = False
    """Whether clients train in processes that may have other devices than this one."""

    exact: bool = Field(False, description="stay with the reference arithmetic: bit-identical results")

    @model_validator(mode="before")
    @classmethod
    def _without_device(cls, values: Any) -> Any:
        """Refuse a device for an engine that has no such option, and say which engines have it."""
        if cls.imported and isinstance(values, dict) and "device" in values and not cls.takes_device():
            sentence = (
                "each owner chooses its own, by 'mnemos federate join --device'"
                if cls.remote
                else f"{cls.name} trains on the CPU alone; engines that take a device: "
                + ", ".join(engine.name for engine in engines if engine.takes_device())
            )
            sentence = f"found {values['device']!r}; {sentence}"
            raise PydanticCustomError("part", "{sentence}", {"sentence": sentence, "path": "device"})
        return values

    @classmethod
    def takes_device(cls) -> bool:
        """Whether it has the option `device`."""
        return "device" in cls.model_fields

    @property
    def asks_beyond(self) -> float:
        """Share of clients asked beyond those that a round takes."""
        return 0.0

    @property
    def train_seconds(self) -> float | None:
        """Seconds after which clients stop training, finished or not; None: they train to the end."""
        return None

    @abstractmethod
    def open(self, plan: Plan, dataset: Dataset, work: Work) -> Runner:
        """Make a runner for requests with `plan`, with its replicas of the model and its workers."""

    def arithmetic(self) -> Arithmetic:
        """The arithmetic of this engine: the settings that decide about the last bits of results."""
        return Arithmetic()

    def planned(self, plan: Plan) -> Plan:
        """The plan with the arithmetic of this engine, in the precision that the plan asks for.

        Raises a ConfigError if a device doesn't have that precision.
        """
        check_precision(plan.local.precision, self.devices)
        arithmetic = self.arithmetic().model_copy(update={"precision": plan.local.precision})
        return plan.model_copy(update={"arithmetic": arithmetic})

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """Where clients train; raises a ConfigError if there is no such device."""
        return (CPU,)

    @property
    def home(self) -> torch.device:
        """Where the server's model is, and where updates are folded and models evaluated."""
        return self.devices[0]


engines: Registry[Engine] = Registry("engine", Engine, "mnemos.engines")


class ClientError(RuntimeError):
    """An unexpected error in a client's training; it names the client and the round, and keeps the cause."""


def blame(request: TrainRequest, error: Exception) -> NoReturn:
    """Raise an error of a client's training again: a MnemosError as it is, others as a ClientError."""
    if isinstance(error, MnemosError):
        raise error
    raise ClientError(
        f"client {request.client} failed in round {request.round}: {type(error).__name__}: {error}"
    ) from error
