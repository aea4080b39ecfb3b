"""One round: what its parts share while it runs, and what it results in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from mnemos.data.partition import Ints
from mnemos.engines.engine import Runner
from mnemos.faults.asking import Absent, Answer
from mnemos.federation.client_states import ClientStates
from mnemos.measures.measure import Record, Watch
from mnemos.methods.exchange import Server, TrainReply
from mnemos.screens import guard
from mnemos.vector import Layout

Check = Callable[[TrainReply, Layout], str | None]
"""Looks at one update before it is aggregated, and returns the reason to reject it, or None."""

DROPPED, REJECTED, SHORTENED = "dropped", "rejected", "shortened"
"""How the names of records begin: of clients that didn't answer, of updates that were rejected, and of
updates that the guard has shortened."""
NOTED = (DROPPED, REJECTED, SHORTENED)


def rejected(reason: str) -> str:
    """The name of the record of an update that was rejected."""
    return f"{REJECTED}: {reason}"


class Attempt(NamedTuple):
    """An attempt at a round: the clients that are asked, and what is known beforehand of their answers."""

    cohort: Ints
    absent: Absent = MappingProxyType({})
    """The clients that won't answer in time."""
    steps: Mapping[int, int] = MappingProxyType({})
    """How many steps each client makes that has to stop early."""


@dataclass
class GroupResult:
    """The result of a round, or of an attempt at one, in one group of clients."""

    server: Server
    """After the round."""
    records: list[Record] = field(default_factory=list)
    watches: list[Watch] = field(default_factory=list)
    """The measures that have seen the clients' models after local training."""
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
        """Record a client's answer, and return the update to aggregate, if there is one."""
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
    """The result of a round: one for each group, and those of failed attempts, which took bytes and time."""

    groups: tuple[GroupResult, ...]
    failed: tuple[tuple[GroupResult, ...], ...] = ()
    """The groups' results in each attempt that brought too few updates."""
    records: tuple[Record, ...] = ()
    """Records of the round as a whole."""
    bytes_between_peers: int = 0
    """Bytes that peers sent each other."""

    @property
    def servers(self) -> tuple[Server, ...]:
        """The server of each group after the round."""
        return tuple(result.server for result in self.groups)

    def moved(self, servers: Sequence[Server]) -> RoundResult:
        """The same result with other servers after the round."""
        groups = zip(self.groups, servers, strict=True)
        return replace(self, groups=tuple(replace(result, server=server) for result, server in groups))


@dataclass(frozen=True)
class RoundContext:
    """What the parts of a round share: the state before it, and the engine."""

    round: int
    servers: tuple[Server, ...]
    """The server of each group before the round."""
    client_states: ClientStates
    runner: Runner
    checks: tuple[Check, ...] = ()
    measured: bool = True
    """Whether measures see the clients' models."""
    without: frozenset[int] = frozenset()
    """Clients whose updates don't arrive: for questions about what would have been."""
    attempt: int | None = None
    """The attempt that counts, however few updates it brings; None: the first that brings enough."""

    def after_failed_attempt(self, results: Sequence[GroupResult]) -> RoundContext:
        """The same round for another attempt; only the guard keeps what it learnt in the failed one."""
        pairs = zip(self.servers, results, strict=True)
        servers = tuple(guard.remembering(old, new.server.screens) for old, new in pairs)
        return replace(self, servers=servers)
