"""Hooks of a round: they change its result between the server's step and the evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from mnemos.client.trainer import fresh_model, intra_op
from mnemos.clocks.in_flight import time_of, timed
from mnemos.clocks.waiting import Waiting
from mnemos.data.partition import Ints
from mnemos.errors import DivergedError
from mnemos.faults.misconduct import LAST
from mnemos.federation.groups import Group
from mnemos.federation.retries import arrived
from mnemos.federation.round import RoundContext, RoundResult
from mnemos.measures.measure import Record
from mnemos.methods.meta import Meta
from mnemos.methods.server_learning import MetaStep, Student, codistil, server_batches
from mnemos.models.dropout import without_dropout
from mnemos.models.functional import Functional
from mnemos.models.mixed import CoDistillation

RoundHook = Callable[[RoundContext, RoundResult], RoundResult]
"""Takes the result of a round, and returns it changed."""


class LearnFromOwnSamples:
    """The meta step: each server whose model has changed in the round learns from its own samples."""

    def __init__(self, groups: Sequence[Group], meta: Meta, samples: Ints) -> None:
        """`samples`: indices of the server's samples."""
        self._steps = [
            MetaStep(meta, group.method, _functional(group), group.dataset, samples) for group in groups
        ]

    def __call__(self, ctx: RoundContext, result: RoundResult) -> RoundResult:
        """The result after the meta step of each group."""
        triples = zip(self._steps, ctx.servers, result.servers, strict=True)
        with intra_op(1):
            return result.moved(
                [after if after.model is before.model else step(after) for step, before, after in triples]
            )


class ExchangePredictions:
    """Co-distillation: models learn from each other's predictions."""

    def __init__(
        self, groups: Sequence[Group], options: CoDistillation, samples: Ints, *, peers: bool
    ) -> None:
        """`peers`: each sends its predictions on the samples to all others, and the bytes are counted."""
        method, dataset = groups[0].method, groups[0].dataset
        self._groups, self._options, self._in_batches = groups, options, method.buffers.in_batches
        self._functionals = [_functional(group) for group in groups]
        self._inputs = [batch.x for batch in server_batches(dataset, samples, groups[0].device)]
        self._bytes = 4 * len(samples) * len(dataset.classes) * method.head.outputs if peers else 0

    def __call__(self, ctx: RoundContext, result: RoundResult) -> RoundResult:
        """The result with the models after the exchange, if one is due."""
        if ctx.round % self._options.every:
            return result
        pairs = list(zip(self._groups, result.groups, strict=True))
        models = [group.models(found) for group, found in pairs]
        kinds = zip(self._functionals, models, strict=True)
        students = [Student(kind, *model) for kind, several in kinds for model in several]
        with intra_op(1):
            learnt = codistil(students, self._inputs, self._options, in_batches=self._in_batches)
        for student, after in zip(students, learnt, strict=True):
            if student.model.isfinite().all() and not after.isfinite().all():
                raise DivergedError(
                    f"round {ctx.round}: a model is not finite any more after the exchange; a smaller "
                    "model.exchange.lr may help"
                )
        rest = iter(learnt)
        own = [list(islice(rest, len(several))) for several in models]
        servers = [group.with_models(found, own[group.index]) for group, found in pairs]
        total = self._bytes * len(students) * (len(students) - 1)
        return replace(result.moved(servers), bytes_between_peers=total)


def remember_change(ctx: RoundContext, result: RoundResult) -> RoundResult:
    """Store the last change of each server's model, if faults or screens need it."""
    servers = [
        after
        if LAST not in after.screens or after.model is before.model
        else replace(after, screens={**after.screens, LAST: after.model - before.model})
        for before, after in zip(ctx.servers, result.servers, strict=True)
    ]
    return result.moved(servers)


def simulate_time(waiting: Waiting) -> RoundHook:
    """A hook that adds the simulated time of a synchronous round, with its failed attempts."""

    def add_time(ctx: RoundContext, result: RoundResult) -> RoundResult:
        attempts = [arrived(groups) for groups in (*result.failed, result.groups)]
        lasted = sum(waiting.duration(clients, asked, ctx.round) for clients, asked in attempts)
        time = time_of(ctx.servers[0].protocol) + lasted
        servers = [replace(server, protocol={**server.protocol, **timed(time)}) for server in result.servers]
        record = Record(ctx.round, "time", time)
        return replace(result.moved(servers), records=(*result.records, record))

    return add_time


def _functional(group: Group) -> Functional:
    return Functional(without_dropout(fresh_model(group.plan, group.dataset)).to(group.device))
