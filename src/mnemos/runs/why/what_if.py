"""A round of a run, aggregated again with some of its updates missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from mnemos.client.messages import TrainRequest
from mnemos.engines.engine import Lost, Runner
from mnemos.errors import PausedError
from mnemos.federation.round import REJECTED, RoundContext, RoundResult
from mnemos.methods.exchange import Server, State, TrainReply
from mnemos.runs.replay import Replay

Servers = tuple[Server, ...]
"""One for each group of clients; an ordinary federation has one."""


class Remembering(Runner):
    """A runner that trains each client once a round, and gives the same reply when it is asked again."""

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner.engine, runner.plan)
        self._runner = runner
        self._replies: dict[tuple[int, int], TrainReply | Lost] = {}

    def run(self, cohort: Iterable[TrainRequest]) -> Iterator[TrainReply | Lost]:
        """The replies in the cohort's order; those that aren't known are trained for first, together."""
        requests = list(cohort)
        missing = [request for request in requests if _key(request) not in self._replies]
        if missing:
            for request, reply in zip(missing, self._runner.run(missing), strict=True):
                self._replies[_key(request)] = reply if isinstance(reply, Lost) else _copied(reply)
        return iter([self._replies[_key(request)] for request in requests])

    def known(self, client: int) -> TrainReply | None:
        """What a client has replied since `forget`, the last time that it was asked."""
        found = [reply for (_, asked), reply in self._replies.items() if asked == client]
        return found[-1] if found and isinstance(found[-1], TrainReply) else None

    def forget(self) -> None:
        """Forget all replies, as the federation goes on to another round."""
        self._replies = {}


def _key(request: TrainRequest) -> tuple[int, int]:
    return request.round, request.client


def _copied(reply: TrainReply) -> TrainReply:
    """The reply with tensors of its own, as an engine may use its memory again."""

    def own(state: State) -> State:
        return {name: tensor.clone() for name, tensor in state.items()}

    return replace(
        reply,
        delta=reply.delta.clone(),
        buffers=reply.buffers.clone(),
        change=own(reply.change),
        state=own(reply.state),
    )


class WhatIf:
    """One round, played with other sets of updates; the federation stays before the round.

    Clients train once. What the method keeps, how it weighs, screens and steps is what a run would do.
    """

    def __init__(self, replay: Replay, round: int) -> None:
        """Put the federation before the round, and play it as it was."""
        replay.to(round - 1)
        self.round, self._replay, self._federation = round, replay, replay.federation
        self.runner = Remembering(replay.runner)
        self.before: Servers = self._federation.servers
        """The servers before the round."""
        result = self._play()
        self.after: Servers = result.servers
        """The servers after the round, as it was."""
        self._attempt = len(result.failed)
        rejected = {
            record.client
            for group in result.groups
            for record in group.records
            if record.name.startswith(REJECTED)
        }
        arrived = [client for group in result.groups for client in group.arrived]
        self.cohort = [client for client in arrived if client not in rejected]
        """The clients whose updates counted, in the order in which they were folded."""

    def without(self, client: int) -> Servers:
        """The servers after a run's round in which this client's update doesn't arrive.

        If too few others are left, other clients are asked, as in a run. If that fails too, the run would
        have paused, and the servers stay as before the round.
        """
        try:
            return self._play(frozenset([client])).servers
        except PausedError:
            return self.before

    def among(self, clients: Collection[int]) -> Servers:
        """The servers after a round with the updates of these clients of its cohort alone, however few."""
        # All others, as clients that came too late count if a faster one is away.
        others = frozenset(range(self._federation.assignment.clients)).difference(clients)
        return self._play(others, self._attempt).servers

    def _play(self, without: frozenset[int] = frozenset(), attempt: int | None = None) -> RoundResult:
        federation = self._federation
        self._replay.prepare(self.round)
        states = federation.client_states
        ctx = RoundContext(
            self.round, self.before, states, self.runner, federation.checks, False, without, attempt
        )
        try:
            return federation.play(ctx)
        finally:
            states.drop()
