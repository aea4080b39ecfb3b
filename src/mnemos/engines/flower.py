"""Clients where their data is: a cohort runs in a federation, over Flower.

Nothing here knows Flower itself: questions go out over a `Link`, and answers come back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Literal, Protocol, Self

import numpy as np
import torch
from pydantic import Field, PrivateAttr
from torch import Tensor

from mnemos.data.dataset import Dataset
from mnemos.data.partition import Ints
from mnemos.data.sources.elsewhere import Elsewhere
from mnemos.engines.engine import ENOUGH, Engine, Lost, Runner, Work, engines
from mnemos.errors import ConfigError, DataError
from mnemos.measures.counting import Counts, Groups
from mnemos.message import Exam, Plan, Tally, Task, update_from_bytes
from mnemos.methods.exchange import Update

ROUND = "federation.round"
"""Of what a client remembers the server only knows in which round it was: the rest stays with the client."""
OLDEST = "federation.oldest"
"""The round that the server may go back to, if later checkpoints are lost: clients remember as long."""

Kind = Literal["query", "train", "evaluate"]


class Link(Protocol):
    """A way to all owners of data."""

    def ask(
        self, kind: Kind, questions: Mapping[int, bytes], timeout: float
    ) -> Iterator[tuple[int, bytes | Lost]]:
        """What clients answer, each once, as they do; or why nothing can be expected of one."""


@engines.register("flower")
class Flower(Engine):
    """Clients train where their data is; `mnemos federate serve` opens the way to them."""

    timeout: float = Field(600.0, gt=0, description="seconds that a round waits for its clients' answers")
    deadline: float | None = Field(
        None,
        gt=0,
        description="seconds that clients train; with methods that allow it, they send what they have done",
    )
    over_selection: float = Field(
        0.0, ge=0, le=10, description="share of clients asked beyond those that a round takes"
    )

    _link: Link | None = PrivateAttr(None)

    def over(self, link: Link) -> Self:
        """The engine, with a way to the clients."""
        engine = self.model_copy()
        engine._link = link
        return engine

    def open(self, plan: Plan, dataset: Dataset, work: Work) -> FlowerRunner:
        """Nothing to make: clients have the replicas."""
        if self._link is None:
            raise ConfigError(
                "found flower, whose clients are elsewhere; 'mnemos federate serve' starts or resumes it",
                "engine",
            )
        return FlowerRunner(self, plan, dataset, self._link, work.cohort if self.over_selection else None)


class FlowerRunner(Runner):
    """Sends tasks to their clients; what these answer is read, and trusted no further."""

    def __init__(self, engine: Flower, plan: Plan, dataset: Dataset, link: Link, takes: int | None) -> None:
        """`takes`: how many updates are enough for a round; None: all."""
        super().__init__(engine, plan)
        self._timeout, self._deadline, self._link, self._takes = engine.timeout, engine.deadline, link, takes
        assert isinstance(plan.data, Elsewhere)
        self._data = plan.data
        assert dataset.train.owners is not None
        self._first = np.searchsorted(dataset.train.owners.numpy(), np.arange(len(dataset.owners)))

    def run(self, cohort: Iterable[Task]) -> Iterator[Update | Lost]:
        """The updates of a cohort, all asked for at once; the others, once there are enough, are left."""
        tasks = {task.client: task for task in cohort}
        questions = _Made(tasks, lambda client: self._own(tasks[client]).to_bytes())
        # All are taken in first: the others' time goes on while somebody looks at an update, which may mean
        # to ask clients again.
        heard: dict[int, Update | Lost] = {}
        usable = 0
        for client, answer in self._link.ask("train", questions, self._timeout):
            heard[client] = one = answer if isinstance(answer, Lost) else _read(tasks[client], answer)
            usable += isinstance(one, Update) and _usable(tasks[client], one)
            if usable == self._takes:
                break
        for client in tasks:
            yield heard.pop(client, Lost(client, ENOUGH))

    def examine(
        self,
        model: Tensor,
        buffers: Tensor,
        part: Literal["train", "test"],
        samples: Mapping[int, Tensor],
        groups: Groups | None = None,
        known: Callable[[int], Ints] | None = None,
    ) -> dict[int, Tally]:
        """How a model does on clients' samples; who isn't heard of, or says what can't be, is left out.

        `known`: a client's training samples, by whose labels it is to correct the model's answers.
        """

        def question(client: int) -> bytes:
            first = int(self._first[client])
            indices = samples[client] - (first if part == "train" else 0)
            labelled = None if known is None else torch.from_numpy(known(client) - first)
            return Exam(self._told(client), model, buffers, part, indices, groups, labelled).to_bytes()

        questions = _Made(samples, question)
        found = {}
        for client, answer in self._link.ask("evaluate", questions, self._timeout):
            if isinstance(answer, Lost):
                continue
            try:
                tally = Tally.from_bytes(answer)
            except DataError:
                continue
            asked = _shape(groups), known is not None
            if (tally.samples, _shape(tally.counts), tally.corrected is not None) == (
                len(samples[client]),
                *asked,
            ):
                found[client] = tally
        return found

    def _own(self, task: Task) -> Task:
        """A task in the client's own terms: its samples are counted from its first."""
        first = int(self._first[task.client])
        return replace(
            task,
            plan=self._told(task.client),
            samples=task.samples - first,
            held_out=task.held_out - first,
            seconds=self._deadline,
        )

    def _told(self, client: int) -> Plan:
        """The plan as a client is told it: nobody needs to know of the other owners."""
        own = self._data.model_copy(update={"owners": (self._data.owners[client],)})
        return self.plan.model_copy(update={"data": own})


class _Made(Mapping[int, bytes]):
    """Questions to clients, each made when it is sent: all at once would be a model a client."""

    def __init__(self, clients: Collection[int], make: Callable[[int], bytes]) -> None:
        self._clients, self._make = clients, make

    def __getitem__(self, client: int) -> bytes:
        return self._make(client)

    def __iter__(self) -> Iterator[int]:
        return iter(self._clients)

    def __len__(self) -> int:
        return len(self._clients)


def _usable(task: Task, update: Update) -> bool:
    """Whether an update may count, as far as it shows at once: junk must not be enough for a round."""
    fits = update.round == task.round and update.delta.shape == task.model.shape
    return fits and bool(update.delta.isfinite().all())


def _shape(counted: Groups | Counts | None) -> tuple[int, int] | None:
    """How many views and groups are asked for, or counted."""
    if isinstance(counted, Groups):
        return len(counted.views), counted.count
    return None if counted is None else (counted.right.shape[0], counted.right.shape[1])


def _read(task: Task, answer: bytes) -> Update | Lost:
    try:
        update = update_from_bytes(answer)
    except DataError:
        return Lost(task.client, "unreadable")
    if update.client != task.client:
        return Lost(task.client, "of another client")
    sent = task.plan.method.buffers.sent
    state = {ROUND: torch.tensor(float(task.round))}
    return replace(update, buffers=update.buffers if sent else task.buffers, state=state)
