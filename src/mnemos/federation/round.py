"""One round: what its parts share while it goes on, and what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from mnemos.data.partition import Ints
from mnemos.engines.engine import Runner
from mnemos.faults.asking import Absent, Answer
from mnemos.federation.client_states import ClientStates
from mnemos.measures.measure import Record
from mnemos.methods.exchange import Server, TrainReply
from mnemos.screens import guard
from mnemos.vector import Layout

Check = Callable[[TrainReply, Layout], str | None]
"""Looks at one update before it is aggregated: the reason to reject it, or None."""

DROPPED, REJECTED, SHORTENED = "dropped", "rejected", "shortened"
"""The first words of records: of clients that didn't answer, of updates that were rejected, and of updates
that the guard has shortened."""
NOTED = (DROPPED, REJECTED, SHORTENED)


def rejected(reason: str) -> str:
    """The name of the record of an update that was rejected."""
    return f"{REJECTED}: {reason}"


class Attempt(NamedTuple):
    """An attempt at a round: the clients that are asked, and those that don't answer in time."""

    cohort: Ints
    absent: Absent = MappingProxyType({})
    """The clients that won't answer in time."""
    steps: Mapping[int, int] = MappingProxyType({})
    """Clients that have to stop early, with the number of their steps."""


@dataclass
class GroupResult:
    """What a round has come to in one group of clients."""

    server: Server
    records: list[Record] = field(default_factory=list)
    watched: list[Record] = field(default_factory=list)
    """What measures have recorded of the clients' models."""
    trained: list[int] = field(default_factory=list)
    """The clients whose training counts."""
    loss: float = 0.0
    """Training loss, summed over the samples of these clients."""
    samples: int = 0
    bytes_up: int = 0
    """Bytes that clients sent to the server."""
    bytes_down: int = 0
    """Bytes that the server sent to clients."""
    asked: int = 0
    """How many clients were asked to train."""
    arrived: list[int] = field(default_factory=list)
    """The clients that answered."""
    used: int = 0
    """How many updates were aggregated."""

    def take(self, round: int, answer: Answer) -> TrainReply | None:
        """Record what came of asking a client; returns the update to aggregate, if there is one."""
        self.asked += 1
        why, notes = "" if answer.reason is None else f": {answer.reason}", {}
        if answer.update is None:
            notes[DROPPED + why] = 1.0
        else:
            self.arrived.append(answer.client)
            if answer.shortened < 1:
                notes[SHORTENED] = answer.shortened
            if answer.usable is None:
                notes[REJECTED + why] = 1.0
        self.used += answer.usable is not None
        self.records += [Record(round, name, value, client=answer.client) for name, value in notes.items()]
        return answer.usable

    def trained_on(self, round: int, update: TrainReply) -> None:
        """Count a client's training loss."""
        self.trained.append(update.client)
        self.records.append(Record(round, "train_loss", update.loss, client=update.client))
        self.loss += update.loss * update.samples
        self.samples += update.samples


@dataclass(frozen=True)
class RoundResult:
    """What a round has come to: a result a group, and what attempts that came to too little have cost."""

    groups: tuple[GroupResult, ...]
    failed: tuple[tuple[GroupResult, ...], ...] = ()
    """The groups' results in each attempt that was given up."""
    records: tuple[Record, ...] = ()
    """Records of the round as a whole."""
    bytes_between_peers: int = 0
    """Bytes that peers sent each other."""

    @property
    def servers(self) -> tuple[Server, ...]:
        """The server of each group after the round."""
        return tuple(result.server for result in self.groups)

    def moved(self, servers: Sequence[Server]) -> RoundResult:
        """The result with other servers."""
        groups = zip(self.groups, servers, strict=True)
        return replace(self, groups=tuple(replace(result, server=server) for result, server in groups))


@dataclass(frozen=True)
class RoundContext:
    """A round that is going on."""

    round: int
    servers: tuple[Server, ...]
    """The server of each group before the round."""
    client_states: ClientStates
    runner: Runner
    checks: tuple[Check, ...] = ()

    def after_failed_attempt(self, results: Sequence[GroupResult]) -> RoundContext:
        """The same round, with what the guard has learnt from an attempt that came to too little."""
        pairs = zip(self.servers, results, strict=True)
        servers = tuple(guard.remembering(old, new.server.screens) for old, new in pairs)
        return replace(self, servers=servers)
