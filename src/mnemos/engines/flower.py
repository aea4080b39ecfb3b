"""The engine for clients on other machines, which train where their data is, over Flower.

This module doesn't import Flower: it sends questions over a `Link` and gets answers back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Literal, Protocol, Self

import numpy as np
import torch
from pydantic import Field, PrivateAttr
from torch import Tensor

from mnemos.client.evaluation import EvaluateReply, EvaluateRequest, is_a_clients_model
from mnemos.client.messages import Plan, TrainRequest, reply_from_bytes
from mnemos.data.dataset import Dataset
from mnemos.data.partition import Ints
from mnemos.data.sources.elsewhere import Elsewhere
from mnemos.engines.engine import ENOUGH, Engine, Lost, Runner, Work, engines
from mnemos.engines.owners import RemoteEvaluator
from mnemos.errors import ConfigError, DataError
from mnemos.measures.counting import Counts, Groups
from mnemos.methods.exchange import TrainReply

ROUND = "federation.round"
"""The only client state that the server knows: the round of the client's newest state, which stays there."""
OLDEST = "federation.oldest"
"""The oldest round that the server may go back to if it loses checkpoints; clients keep states since then."""

Kind = Literal["query", "train", "evaluate"]


class Link(Protocol):
    """A connection to all clients."""

    def ask(
        self, kind: Kind, questions: Mapping[int, bytes], timeout: float
    ) -> Iterator[tuple[int, bytes | Lost]]:
        """Send questions, by client, and yield each client's answer or loss once, as they come.

        `timeout` is in seconds.
        """


@engines.register("flower")
class Flower(Engine):
    """Clients train where their data is; `mnemos federate serve` connects them."""

    remote: ClassVar[bool] = True

    timeout: float = Field(600.0, gt=0, description="seconds that a round waits for its clients' answers")
    deadline: float | None = Field(
        None,
        gt=0,
        description="seconds that clients train; with methods that allow it, they send what they have done",
    )
    over_selection: float = Field(
        0.0, ge=0, le=10, description="share of clients asked beyond those that a round takes"
    )

    share_model: bool = Field(False, description="give every owner the final model when the run is finished")

    _link: Link | None = PrivateAttr(None)

    @property
    def asks_beyond(self) -> float:
        """`over_selection`."""
        return self.over_selection

    @property
    def train_seconds(self) -> float | None:
        """`deadline`."""
        return self.deadline

    def over(self, link: Link) -> Self:
        """The engine with a connection to the clients."""
        engine = self.model_copy()
        engine._link = link
        return engine

    def open(self, plan: Plan, dataset: Dataset, work: Work) -> FlowerRunner:
        """A runner that sends requests over the link; the clients have the replicas."""
        if self._link is None:
            raise ConfigError(
                "found flower, whose clients are elsewhere; 'mnemos federate serve' starts or resumes it",
                "engine",
            )
        takes = work.cohort if self.over_selection else None
        return FlowerRunner(self, self.planned(plan), dataset, self._link, takes)


class FlowerRunner(Runner):
    """Sends requests to clients, and reads their answers without trusting them."""

    def __init__(self, engine: Flower, plan: Plan, dataset: Dataset, link: Link, takes: int | None) -> None:
        """`takes` is the number of updates that are enough for a round; None for all."""
        super().__init__(engine, plan)
        self._timeout, self._deadline, self._link, self._takes = engine.timeout, engine.deadline, link, takes
        assert isinstance(plan.data, Elsewhere)
        self._data = plan.data
        assert dataset.train.owners is not None
        self._first = np.searchsorted(dataset.train.owners.numpy(), np.arange(len(dataset.owners)))

    def run(self, cohort: Iterable[TrainRequest]) -> Iterator[TrainReply | Lost]:
        """Ask all clients of a cohort at once; once there are enough updates, the other clients are lost."""
        requests = {request.client: request for request in cohort}
        questions = _LazyQuestions(requests, lambda client: self._own(requests[client]).to_bytes())
        # All answers are received before the first is yielded: the caller may take long over an update, even
        # ask clients again, while the timeout of the others would go on.
        heard: dict[int, TrainReply | Lost] = {}
        usable = 0
        for client, answer in self._link.ask("train", questions, self._timeout):
            reply = answer if isinstance(answer, Lost) else _read(requests[client], answer)
            heard[client] = reply
            usable += isinstance(reply, TrainReply) and _usable(requests[client], reply)
            if usable == self._takes:
                break
        for client in requests:
            yield heard.pop(client, Lost(client, ENOUGH))

    def evaluator(self, dataset: Dataset) -> RemoteEvaluator:
        """Asks the owners."""
        return RemoteEvaluator(self.examine, dataset)

    def examine(
        self,
        model: Tensor,
        buffers: Tensor,
        part: Literal["train", "test"],
        samples: Mapping[int, Tensor],
        groups: Groups | None = None,
        known: Callable[[int], Ints] | None = None,
    ) -> dict[int, EvaluateReply]:
        """Have clients evaluate a model. Returns their answers, without clients that don't answer sensibly.

        `samples` are the samples to evaluate by client, of its `part` of the data. `groups` says by what to
        count right answers. `known(client)` are the client's training samples, by whose labels it corrects
        the model's answers; None for no correction.
        """

        def question(client: int) -> bytes:
            first = int(self._first[client])
            indices = samples[client] - (first if part == "train" else 0)
            labelled = None if known is None else torch.from_numpy(known(client) - first)
            plan = self._told(client)
            return EvaluateRequest(
                plan, model, buffers, part, indices, groups, labelled, is_a_clients_model()
            ).to_bytes()

        questions = _LazyQuestions(samples, question)
        found = {}
        for client, answer in self._link.ask("evaluate", questions, self._timeout):
            if isinstance(answer, Lost):
                continue
            try:
                reply = EvaluateReply.from_bytes(answer)
            except DataError:
                continue
            asked = _shape(groups), known is not None
            if (reply.samples, _shape(reply.counts), reply.corrected is not None) == (
                len(samples[client]),
                *asked,
            ):
                found[client] = reply
        return found

    def _own(self, request: TrainRequest) -> TrainRequest:
        """The request as it is sent to its client, with sample indices that begin at the client's first."""
        first = int(self._first[request.client])
        return replace(
            request,
            plan=self._told(request.client),
            samples=request.samples - first,
            held_out=request.held_out - first,
            seconds=self._deadline,
        )

    def _told(self, client: int) -> Plan:
        """The plan as it is sent to a client, without the names of the other owners."""
        own = self._data.model_copy(update={"owners": (self._data.owners[client],)})
        return self.plan.model_copy(update={"data": own})


class _LazyQuestions(Mapping[int, bytes]):
    """Questions by client, each made when it is sent: together they would hold a copy of the model each."""

    def __init__(self, clients: Collection[int], make: Callable[[int], bytes]) -> None:
        self._clients, self._make = clients, make

    def __getitem__(self, client: int) -> bytes:
        return self._make(client)

    def __iter__(self) -> Iterator[int]:
        return iter(self._clients)

    def __len__(self) -> int:
        return len(self._clients)


def _usable(request: TrainRequest, update: TrainReply) -> bool:
    """Whether an update seems usable, so that it counts among those that are enough for a round."""
    fits = update.round == request.round and update.delta.shape == request.model.shape
    return fits and bool(update.delta.isfinite().all())


def _shape(counted: Groups | Counts | None) -> tuple[int, int] | None:
    """The numbers of views and groups that are asked for or were counted; None for None."""
    if isinstance(counted, Groups):
        return len(counted.views), counted.count
    return None if counted is None else (counted.right.shape[0], counted.right.shape[1])


def _read(request: TrainRequest, answer: bytes) -> TrainReply | Lost:
    """The update in a client's answer, or why there is none."""
    try:
        update = reply_from_bytes(answer)
    except DataError:
        return Lost(request.client, "unreadable")
    if update.client != request.client:
        return Lost(request.client, "of another client")
    sent = request.plan.method.buffers.sent
    state = {ROUND: torch.tensor(float(request.round))}
    return replace(update, buffers=update.buffers if sent else request.buffers, state=state)
