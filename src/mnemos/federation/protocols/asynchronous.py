"""Asynchronous rounds: clients train at their own pace, and a round is one move of the server.

FedAsync: Xie, Koyejo, Gupta, 2019, arXiv 1903.03934. FedBuff: Nguyen et al., 2022, arXiv 2106.06639.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from mnemos.client.requests import TrainRequests
from mnemos.clocks.event_schedule import EventSchedule, InFlight, Turn
from mnemos.clocks.in_flight import ClientsInFlight, Versions
from mnemos.engines.engine import Lost
from mnemos.faults.asking import by_engine
from mnemos.federation.groups import Group
from mnemos.federation.protocols.protocol import RoundProtocol
from mnemos.federation.retries import spoilt
from mnemos.federation.round import Attempt, GroupResult, RoundContext, RoundResult, rejected
from mnemos.measures.measure import Record
from mnemos.methods.exchange import Server, TrainReply
from mnemos.methods.replies import TrainReplies
from mnemos.screens.sound import NOT_FINITE

_SPOILT = "spoilt"
"""The clients that were due since the last finite update, with how many updates of each weren't finite."""
_PATIENCE = 10
"""A run doesn't end before this many updates in a row weren't finite, however few clients train at a time."""

Replies = Mapping[int, TrainReply | Lost]
"""What each client has computed, or why it couldn't."""


class AsynchronousRounds(RoundProtocol):
    """The server moves when the clock's buffer is full.

    An update is determined when its client is sent a model, so it can be computed at any time until it is
    due. When one is due that is missing, the engine computes all that are missing, as one cohort. That keeps
    the cores busy even if the server moves after every single update.
    """

    def __init__(self, group: Group, schedule: EventSchedule) -> None:
        self._group, self._schedule = group, schedule

    def run(self, ctx: RoundContext) -> RoundResult:
        """Send models to free clients, take in updates that are due, weigh them by staleness, and move."""
        (server,) = ctx.servers
        before = ClientsInFlight.of(server.protocol, server.model.device)
        turn = self._schedule.turn(ctx.round, before.standing)
        versions = {**before.versions, ctx.round - 1: self._group.broadcast(ctx.round, server, 1)}
        replies = self._computed(ctx, before, turn, versions)
        result = self._aggregated(ctx, turn, versions, replies)
        result.bytes_down = self._group.bytes_down(result.server) * len(turn.started)
        result.records.append(Record(ctx.round, "time", turn.after.time))
        late = {job.client: replies.get(job.client) for job in turn.after.in_flight}
        updates = {client: reply for client, reply in late.items() if isinstance(reply, TrainReply)}
        protocol = ClientsInFlight(turn.after, versions, updates).state()
        protocol[_SPOILT] = self._count_spoilt(ctx, server, result)
        result.server = replace(result.server, protocol=protocol)
        return RoundResult((result,))

    def _computed(
        self, ctx: RoundContext, before: ClientsInFlight, turn: Turn, versions: Versions
    ) -> Replies:
        """The replies of all clients that are due, and maybe others; computes all missing ones at once."""
        replies: dict[int, TrainReply | Lost] = dict(before.updates)
        if any(job.client not in replies for job in turn.arrived):
            missing = {
                job.client: versions[job.version]
                for job in (*before.standing.in_flight, *turn.started)
                if job.client not in replies and not self._vanishes(job)
            }
            train = by_engine(ctx.runner, len(missing))
            for found in train(self._group.requests(ctx, missing, {})):
                replies |= {reply.client: reply for reply in ([found] if isinstance(found, Lost) else found)}
        return replies

    def _vanishes(self, job: InFlight) -> bool:
        return self._group.experiment.vanishes(job.client, job.version + 1)

    def _aggregated(self, ctx: RoundContext, turn: Turn, versions: Versions, replies: Replies) -> GroupResult:
        """Screen and fold the updates that are due; one from an older model has less weight."""
        (server,), clock = ctx.servers, self._schedule.clock
        arrived = {job.client: versions[job.version] for job in turn.arrived}
        staleness = {job.client: ctx.round - 1 - job.version for job in turn.arrived}

        def discount(update: TrainReply) -> TrainReply:
            """α s(τ) Δ; if the clock mixes models, Δ is taken from the server's present model."""
            delta, weight = update.delta, clock.weight(staleness[update.client])
            if clock.mixes_models:
                delta = delta + (arrived[update.client].model - server.model)
            buffers = torch.lerp(server.buffers, update.buffers, weight)
            return replace(update, delta=weight * delta, buffers=buffers)

        def computed(requests: TrainRequests) -> Iterator[TrainReplies | Lost]:
            for reply in map(replies.__getitem__, requests.clients):
                yield reply if isinstance(reply, Lost) else TrainReplies([reply])

        gone = {job.client: None for job in turn.arrived if self._vanishes(job)}
        attempt, memory = Attempt(np.array([*arrived]), gone), dict(server.screens)
        answers = self._group.answers(ctx, arrived, attempt, memory, computed)
        result = self._group.aggregate(ctx, arrived, answers, memory, discount)
        result.records += [
            Record(ctx.round, "staleness", float(staleness[client]), client=client)
            for client in result.trained
        ]
        return result

    def _count_spoilt(self, ctx: RoundContext, before: Server, result: GroupResult) -> Tensor:
        """(client, its updates that weren't finite) [n, 2], since the last finite update of any client.

        Raises the error that ends the run if all updates were not finite for too long. There is no other
        cohort to ask, so the server waits for as many updates as several cohorts would send, and until more
        than half of the clients that were due have sent such updates.
        """
        counts: Counter[int] = Counter()
        astray = {record.client for record in result.records if record.name == rejected(NOT_FINITE)}
        if astray.issuperset(result.arrived):
            counts = Counter(dict(before.protocol[_SPOILT].tolist()) if _SPOILT in before.protocol else {})
            for client in (record.client for record in result.records if record.client is not None):
                counts[client] += client in astray  # or it was dropped: others have no record
            enough = max(_PATIENCE, (self._group.experiment.retries + 1) * self._schedule.slots)
            if counts.total() >= enough and 2 * sum(map(bool, counts.values())) > len(counts):
                raise spoilt(ctx.round)
        return torch.tensor([*counts.items()], dtype=torch.int64).view(-1, 2)
