"""Asking clients to train: the engine trains them, and simulated faults act on what they send."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from mnemos.client.messages import TrainRequest
from mnemos.common.activity import training
from mnemos.engines.engine import Lost
from mnemos.faults.misconduct import Misconduct
from mnemos.methods.exchange import State, TrainReply


class Answer(NamedTuple):
    """A client's answer to a request: an update, or none."""

    client: int
    update: TrainReply | None = None
    """None: the client didn't answer."""
    trained: bool = True
    """False for a client that made up its update without training."""
    reason: str | None = None
    """Why the update is rejected, or why there is none."""
    shortened: float = 1.0
    """The factor by which the guard has multiplied the update."""

    @property
    def usable(self) -> TrainReply | None:
        """The update, unless it was rejected."""
        return self.update if self.reason is None else None


Train = Callable[[Iterable[TrainRequest]], Iterator[TrainReply | Lost]]
"""Trains clients, as `Runner.run` does."""
Answers = Iterator[tuple[TrainRequest, Answer]]
"""Each request with its answer, in the order of the requests."""
Absent = Mapping[int, str | None]
"""Clients that don't answer in time. The reason is for the record; drop-outs have none."""


def counted(train: Train, clients: int) -> Train:
    """`train`, which also tells how many of the round's `clients` are through."""

    def trained(requests: Iterable[TrainRequest]) -> Iterator[TrainReply | Lost]:
        training(0, clients)
        for through, reply in enumerate(train(requests), 1):
            training(through, clients)
            yield reply

    return trained


def ask(
    train: Train, requests: Iterable[TrainRequest], absent: Absent, bad: Misconduct, memory: State
) -> Answers:
    """Each request with its answer; faults decide what bad clients send.

    `memory` holds what bad clients remember; they add to it.
    """
    answers = _one_by_one(train, requests, absent, bad, memory)
    if not bad.colluders:
        yield from answers
        return
    together = list(answers)
    crafted = bad.colluded(
        [(request, answer.update) for request, answer in together if answer.update and answer.trained], memory
    )
    for request, answer in together:
        yield request, answer._replace(update=crafted.get(answer.client, answer.update))


def _one_by_one(
    train: Train, requests: Iterable[TrainRequest], absent: Absent, bad: Misconduct, memory: State
) -> Answers:
    """Answers of clients that don't collude.

    The engine gets only the requests of clients that train. The answers of absent clients, and of those
    that pretend to train, are put between the engine's replies, so that the order stays that of the requests.
    `train` answers each request with exactly one reply or loss, in order.
    """
    waiting: deque[tuple[TrainRequest, Answer | None]] = deque()  # None: the engine trains the client

    def training() -> Iterator[TrainRequest]:
        for request in requests:
            client, instead = request.client, None
            if client in absent:
                instead = Answer(client, reason=absent[client])
            elif (update := bad.pretended(request, memory)) is not None:
                instead = Answer(client, update, trained=False)
            waiting.append((request, instead))
            if instead is None:
                yield request

    for reply in train(training()):
        request, instead = waiting.popleft()
        while instead is not None:
            yield request, instead
            request, instead = waiting.popleft()
        client = request.client
        if isinstance(reply, Lost):
            yield request, Answer(client, reason=reply.reason)
        else:
            yield request, Answer(client, bad.tampered(reply, client, memory))
    yield from ((request, instead) for request, instead in waiting if instead is not None)
