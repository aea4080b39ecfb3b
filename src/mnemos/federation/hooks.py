"""What acts on a round between the server's step and the evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from mnemos.clocks.waiting import Waiting
from mnemos.errors import DivergedError
from mnemos.federation.codistillation import Exchange, ExchangedModel
from mnemos.federation.groups import Group
from mnemos.federation.in_flight import time_of, timed
from mnemos.federation.retries import arrived
from mnemos.federation.round import RoundContext, RoundResult
from mnemos.measures.measure import Record


class Hook(Protocol):
    """Something that changes what a round has come to."""

    def after_step(self, ctx: RoundContext, result: RoundResult) -> RoundResult:
        """The result after the hook."""


class ExchangeModels:
    """Models learn from each other's predictions: co-distillation."""

    def __init__(self, groups: Sequence[Group], exchange: Exchange, *, peers: bool) -> None:
        """`peers`: each sends its predictions to all others, which counts as bytes sent."""
        self._groups, self._exchange, self._peers = groups, exchange, peers

    def after_step(self, ctx: RoundContext, result: RoundResult) -> RoundResult:
        """The groups with the models after the exchange, if one is due."""
        if not self._exchange.due(ctx.round):
            return result
        pairs = list(zip(self._groups, result.groups, strict=True))
        models = [
            ExchangedModel(group.members.group, *model)
            for group, found in pairs
            for model in group.models(found)
        ]
        learnt = self._exchange(models)
        for before, after in zip(models, learnt, strict=True):
            if before.model.isfinite().all() and not after.isfinite().all():
                raise DivergedError(
                    f"round {ctx.round}: a model is not finite any more after the exchange; a smaller "
                    "model.exchange.lr may help"
                )
        rest = iter(learnt)
        servers = [
            group.with_models(found, [next(rest) for _ in group.models(found)]) for group, found in pairs
        ]
        sent = self._exchange.bytes * len(models) * (len(models) - 1) if self._peers else 0
        return replace(result.moved(servers), exchanged=sent)


class RememberChange:
    """The server remembers how its model has changed, if faults or screens compare with it."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self._groups = groups

    def after_step(self, ctx: RoundContext, result: RoundResult) -> RoundResult:
        """The groups with their last change."""
        triples = zip(self._groups, ctx.servers, result.servers, strict=True)
        return result.moved([group.moved(before, after) for group, before, after in triples])


class SimulatedTime:
    """The time that a synchronous round takes, with its failed attempts."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting

    def after_step(self, ctx: RoundContext, result: RoundResult) -> RoundResult:
        """The groups with the time after the round, which is recorded."""
        attempts = [arrived(groups) for groups in (*result.failed, result.groups)]
        lasted = sum(self._waiting.duration(clients, asked, ctx.round) for clients, asked in attempts)
        time = time_of(ctx.servers[0].protocol) + lasted
        servers = [replace(server, protocol={**server.protocol, **timed(time)}) for server in result.servers]
        record = Record(ctx.round, "time", time)
        return replace(result.moved(servers), records=(*result.records, record))
