"""Asking clients to train: the engine trains them, and simulated faults act on what they send."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mnemos.client.requests import TrainRequests
from mnemos.common.activity import training
from mnemos.engines.engine import Lost, Runner, in_blocks
from mnemos.faults.misconduct import Misconduct
from mnemos.methods.exchange import State, TrainReply
from mnemos.methods.replies import Columns, TrainReplies


@dataclass(frozen=True)
class Answers:
    """The answers of some clients to their requests: an update of each, or none of any."""

    requests: TrainRequests
    updates: TrainReplies | None = None
    """None: these clients didn't answer."""
    trained: bool = True
    """False for clients that made up their updates without training."""
    reasons: Mapping[int, str | None] = field(default_factory=dict)
    """Why an update is rejected, or why there is none, by the client's index among these."""
    shortened: Mapping[int, float] = field(default_factory=dict)
    """The factor by which the guard has multiplied an update, likewise."""

    @property
    def clients(self) -> Sequence[int]:
        """The clients that were asked."""
        return self.requests.clients

    @property
    def sent(self) -> Sequence[TrainReply | Columns]:
        """The updates as they have come: columns, or one by one; none if there are none."""
        updates = self.updates
        return [updates.columns] if updates and updates.in_columns else updates or []

    @property
    def usable(self) -> TrainReplies:
        """The updates, but for those that were rejected."""
        if self.updates is None:
            return TrainReplies([])
        if not self.reasons:
            return self.updates
        return self.updates.picked([k for k in range(len(self.updates)) if k not in self.reasons])

    def rejecting(self, reasons: Mapping[int, str]) -> Answers:
        """The same, with reasons to reject updates that nothing else has rejected."""
        return replace(self, reasons={**reasons, **self.reasons}) if reasons else self


Train = Callable[[TrainRequests], Iterator[TrainReplies | Lost]]
"""Trains clients; their replies come in blocks."""
Absent = Mapping[int, str | None]
"""Clients that don't answer in time. The reason is for the record; drop-outs have none."""


def by_engine(runner: Runner, clients: int) -> Train:
    """Training by an engine, which also tells how many of the round's `clients` are through."""

    def trained(requests: TrainRequests) -> Iterator[TrainReplies | Lost]:
        through = 0
        training(through, clients)
        for replies in in_blocks(runner.run(requests)):
            through += 1 if isinstance(replies, Lost) else len(replies)
            training(through, clients)
            yield replies

    return trained


def ask(
    train: Train, requests: TrainRequests, absent: Absent, bad: Misconduct, memory: State
) -> Iterator[Answers]:
    """The answers to requests, in their order; faults decide what bad clients send.

    `memory` holds what bad clients remember; they add to it.
    """
    answers = _answers(train, requests, absent, bad, memory)
    if not bad.colluders:
        yield from answers
        return
    together = list(answers)
    crafted = bad.colluded(
        [
            pair
            for some in together
            if some.trained and some.updates
            for pair in zip(some.requests, some.updates, strict=True)
        ],
        memory,
    )
    for some in together:
        if some.updates is not None and not crafted.keys().isdisjoint(some.clients):
            some = replace(some, updates=some.updates.each(lambda own: crafted.get(own.client, own)))
        yield some


def _answers(
    train: Train, requests: TrainRequests, absent: Absent, bad: Misconduct, memory: State
) -> Iterator[Answers]:
    """Answers of clients that don't collude.

    The engine gets only the requests of clients that train. The answers of absent clients, and of those
    that pretend to train, are put between the engine's replies, so that the order stays that of the requests.
    `train` answers each request with exactly one reply or loss, in order.
    """

    def instead(first: int, last: int) -> Iterator[Answers]:
        """The answers of clients that don't train."""
        for index in range(first, last):
            one, client = requests[index : index + 1], requests.clients[index]
            if client in absent:
                yield Answers(one, reasons={0: absent[client]})
            else:
                yield Answers(one, TrainReplies([bad.pretended(one[0], memory)]), trained=False)

    asked = [*range(len(requests))]
    if absent or bad.pretenders:
        others = absent.keys() | bad.pretenders.keys()
        asked = [index for index in asked if requests.clients[index] not in others]
    through = answered = 0  # how many of those that are asked, and of all
    for found in train(requests.picked(asked)):
        replies = TrainReplies([]) if isinstance(found, Lost) else bad.tampered(found, memory)
        places = asked[through : through + (len(replies) or 1)]
        through += len(places)
        for begin, end in _neighbours(places):
            yield from instead(answered, places[begin])
            answered = places[begin] + end - begin
            some = requests[places[begin] : answered]
            if isinstance(found, Lost):
                yield Answers(some, reasons={0: found.reason})
            else:
                yield Answers(some, replies[begin:end])
    yield from instead(answered, len(requests))


def _neighbours(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(begin, end) of each stretch of places that follow on one another."""
    if places[-1] - places[0] < len(places):  # they are in order, so there is no gap
        yield 0, len(places)
        return
    begin = 0
    for end in range(1, len(places) + 1):
        if end == len(places) or places[end] != places[end - 1] + 1:
            yield begin, end
            begin = end
