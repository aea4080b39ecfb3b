"""One round: what its parts share while it runs, and what it results in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from mnemos.data.partition import Ints
from mnemos.engines.engine import Runner
from mnemos.faults.asking import Absent, Answers
from mnemos.federation.client_states import ClientStates
from mnemos.measures.measure import Record, Watch
from mnemos.methods.exchange import Server, TrainReply
from mnemos.methods.replies import TrainReplies
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

    def take(self, round: int, answers: Answers) -> TrainReplies:
        """Record clients' answers, and return the updates to aggregate."""
        updates, reasons, usable = answers.updates, answers.reasons, answers.usable
        self.asked += len(answers.clients)
        self.used += len(usable)
        if updates is None:
            for index, client in enumerate(answers.clients):
                self._note(round, DROPPED, client, 1.0, reasons[index])
            return usable
        self.arrived += answers.clients
        found = updates.columns if updates.in_columns else None
        samples = found.samples if found else [update.samples for update in updates]
        losses = found.losses if found else [update.loss for update in updates]
        for index, (client, own, loss) in enumerate(zip(answers.clients, samples, losses, strict=True)):
            if index in answers.shortened:
                self._note(round, SHORTENED, client, answers.shortened[index])
            if index in reasons:
                self._note(round, REJECTED, client, 1.0, reasons[index])
            elif answers.trained:
                self.records.append(Record(round, "train_loss", loss, client))
                self.trained.append(client)
                self.loss += loss * own
                self.samples += own
        return usable

    def _note(self, round: int, name: str, client: int, value: float, reason: str | None = None) -> None:
        why = "" if reason is None else f": {reason}"
        self.records.append(Record(round, name + why, value, client))


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
