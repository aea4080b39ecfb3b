"""Asynchronous rounds: clients train at their own pace, and a round is one move of the server.

FedAsync: Xie, Koyejo, Gupta, 2019, arXiv 1903.03934. FedBuff: Nguyen et al., 2022, arXiv 2106.06639.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from mnemos.client.messages import TrainRequest
from mnemos.clocks.event_schedule import EventSchedule, InFlight, Turn
from mnemos.engines.engine import Lost, Runner
from mnemos.federation.aggregation import Stale
from mnemos.federation.groups import Group
from mnemos.federation.in_flight import ClientsInFlight, Sent
from mnemos.federation.misconduct import vanishes
from mnemos.federation.protocols.protocol import RoundProtocol
from mnemos.federation.retries import spoilt
from mnemos.federation.round import Attempt, Broadcast, GroupResult, RoundContext, RoundResult, rejected
from mnemos.measures.measure import Record
from mnemos.methods.exchange import Server, TrainReply
from mnemos.screens.sound import NOT_FINITE

_SPOILT = "spoilt"
"""Clients that were due since the last finite update, and how many updates each has sent that weren't."""
_PATIENCE = 10
"""Updates in a row that may be not finite, however few clients train at a time."""

Replies = Mapping[int, TrainReply | Lost]
"""What clients have computed, or why one couldn't."""


class AsynchronousRounds(RoundProtocol):
    """The server moves when the clock's buffer is full.

    What a client computes is determined when it is sent its model. So it is computed when the first of the
    clients that are training is due, together with all others, as one cohort: cores are kept busy even
    where the server moves for each single update.
    """

    def __init__(self, group: Group, schedule: EventSchedule) -> None:
        self._group, self._schedule = group, schedule

    def run(self, ctx: RoundContext) -> RoundResult:
        """Send models to free clients, take in those that are due, weigh them by staleness, and move."""
        (server,) = ctx.servers
        before = ClientsInFlight.of(server.protocol)
        turn = self._schedule.turn(ctx.round, before.standing)
        now = Sent(server.model, server.buffers, self._group.broadcast(ctx.round, server, 1).received)
        sent = {**before.sent, ctx.round - 1: now}
        replies = self._computed(ctx, before, turn, sent)
        result = self._aggregated(ctx, turn, sent, replies)
        result.received = self._group.bytes_received(result.server) * len(turn.sent)
        result.records.append(Record(ctx.round, "time", turn.after.time))
        flying = {job.client for job in turn.after.in_flight}
        left = {
            client: reply
            for client, reply in replies.items()
            if client in flying and isinstance(reply, TrainReply)
        }
        protocol = ClientsInFlight(turn.after, sent, left).state()
        protocol[_SPOILT] = self._count_spoilt(ctx, server, result)
        result.server = replace(result.server, protocol=protocol)
        return RoundResult((result,))

    def _computed(
        self, ctx: RoundContext, before: ClientsInFlight, turn: Turn, sent: Mapping[int, Sent]
    ) -> dict[int, TrainReply | Lost]:
        """What the clients that are due have computed, and perhaps others; all that isn't yet, at once."""
        replies: dict[int, TrainReply | Lost] = dict(before.updates)
        if any(job.client not in replies for job in turn.arrived):
            jobs = [job for job in (*before.standing.in_flight, *turn.sent) if job.client not in replies]
            experiment = self._group.experiment
            requests = (
                request
                for request in self._requests(ctx, jobs, sent)
                if not vanishes(experiment, request.client, request.round)
            )
            replies |= {reply.client: reply for reply in ctx.runner.run(requests)}
        return replies

    def _requests(
        self, ctx: RoundContext, jobs: Iterable[InFlight], sent: Mapping[int, Sent]
    ) -> Iterator[TrainRequest]:
        for version, together in groupby(jobs, key=lambda job: job.version):
            clients = np.array([job.client for job in together])
            broadcast = Broadcast(version + 1, sent[version].start, sent[version].received)
            yield from self._group.requests(ctx, broadcast, clients, {})

    def _aggregated(
        self, ctx: RoundContext, turn: Turn, sent: Mapping[int, Sent], replies: Replies
    ) -> GroupResult:
        """Screen and fold the updates that are due."""
        (server,), group = ctx.servers, self._group
        origins = {job.client: sent[job.version] for job in turn.arrived}
        staleness = {job.client: ctx.round - 1 - job.version for job in turn.arrived}
        memory = dict(server.screens)
        requests, ready = self._requests(ctx, turn.arrived, sent), _Ready(ctx.runner, replies)
        heard = group.misconduct.around(ready, requests, Attempt(np.array([*origins])), memory)
        answers = group.screening.screen(heard, server, memory, ctx.checks)
        mean = group.aggregation(ctx.round, server, len(turn.arrived))
        models = {client: origin.model for client, origin in origins.items()}
        aggregation = Stale(mean, self._schedule.clock, server, models, staleness)

        def start(client: int) -> tuple[Tensor, Tensor]:
            return origins[client].model, origins[client].buffers

        watching = group.watching_apart(ctx.round, np.array([*origins]), start)
        return group.aggregate(ctx, answers, aggregation, watching, memory)

    def _count_spoilt(self, ctx: RoundContext, before: Server, result: GroupResult) -> Tensor:
        """How many updates in a row were not finite, by client [n, 2]; where nothing else comes, it ends.

        There is no other cohort to try, so the server waits for as many updates as several cohorts would
        have; and more than half of the clients that were due in that time must have sent such updates.
        """
        counts: Counter[int] = Counter()
        astray = {record.client for record in result.records if record.name == rejected(NOT_FINITE)}
        if astray.issuperset(result.arrived):
            counts = Counter(dict(before.protocol[_SPOILT].tolist()) if _SPOILT in before.protocol else {})
            for client in (record.client for record in result.records if record.client is not None):
                counts[client] += client in astray  # or it was dropped: no other client has a record
            enough = max(_PATIENCE, (self._group.experiment.retries + 1) * self._schedule.slots)
            if counts.total() >= enough and 2 * sum(map(bool, counts.values())) > len(counts):
                raise spoilt(ctx.round)
        return torch.tensor([*counts.items()], dtype=torch.int64).view(-1, 2)


class _Ready(Runner):
    """Hands over what has been computed, in the place of an engine."""

    def __init__(self, runner: Runner, replies: Replies) -> None:
        super().__init__(runner.engine, runner.plan)
        self._replies = replies

    def run(self, cohort: Iterable[TrainRequest]) -> Iterator[TrainReply | Lost]:
        """The clients' replies."""
        return (self._replies[request.client] for request in cohort)
