"""Checks of updates before they are aggregated: form, plausibility, the guard, the experiment's screens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from mnemos.client.messages import TrainRequest
from mnemos.client.trainer import intra_op
from mnemos.client.workload import rates, workload
from mnemos.experiment.experiment import Experiment
from mnemos.faults.asking import Answer, Answers
from mnemos.faults.misconduct import LAST
from mnemos.federation.round import Check
from mnemos.methods.exchange import Cohort, Rates, Server, State, TrainReply
from mnemos.screens.guard import BoundsCheck, Verdict, shorten
from mnemos.screens.sound import Asked, Form, measurable
from mnemos.vector import Layout

_TOGETHER = 2**28
"""Bytes of updates that the guard compares at a time; it compares larger cohorts in several parts."""
_AT_LEAST = 8
"""The guard compares at least this many updates at a time, however large they are."""


class Screening:
    """Rejects and shortens updates. The caller keeps its memory, in a dictionary."""

    def __init__(self, experiment: Experiment, layout: Layout, form: Form, *, guarded: bool) -> None:
        """`guarded`: the experiment's guard compares the updates."""
        self._screens, self._layout, self._form = experiment.screens, layout, form
        policy, guard = experiment.method.buffers, experiment.guard
        self._guard = (
            BoundsCheck(guard, layout, statistics=policy.sent, continued=policy.received)
            if guarded and guard.enabled
            else None
        )
        self._count = max(_AT_LEAST, _TOGETHER // (4 * (layout.size + layout.buffer_size)))

    def screen(
        self, answers: Answers, server: Server, memory: State, checks: tuple[Check, ...]
    ) -> Iterator[Answer]:
        """The answers, in order, each with the reason if its update is rejected; adds to the memory."""
        sound = self._sound(answers, checks)
        guarded = sound if self._guard is None else self._guarded(self._guard, sound, server, memory)
        return iter(self._compared(list(guarded), server, memory)) if self._screens else guarded

    def _sound(self, answers: Answers, checks: tuple[Check, ...]) -> Iterator[Answer]:
        """The answers after each update has been checked by itself."""
        # One by one as they come, so that none has to be kept; in parts if the guard keeps as many anyway.
        at_once = 1 if self._guard is None else self._count
        known = _Known()
        while part := list(islice(answers, at_once)):
            with intra_op(1):  # more threads wait for each other longer than these sums take
                reasons = self._reasons(part, checks, known)
            for (_, answer), reason in zip(part, reasons, strict=True):
                yield answer if reason == answer.reason else answer._replace(reason=reason)

    def _reasons(
        self, part: Sequence[tuple[TrainRequest, Answer]], checks: tuple[Check, ...], known: _Known
    ) -> list[str | None]:
        """Why each of some answers can't be used, from its update by itself; None: it can."""
        there = [(answer.update, request, answer) for request, answer in part if answer.update is not None]
        asked = [(update, known.asked(request), answer.trained) for update, request, answer in there]
        flaws = iter(self._form.flaws(asked))
        reasons: list[str | None] = []
        for request, answer in part:
            update, reason = answer.update, answer.reason
            if update is not None:
                reason = next(flaws) or reason
                if reason is None:
                    reason = self._implausible(request, update, known)
                if reason is None and checks:
                    reason = next(filter(None, (check(update, self._layout) for check in checks)), None)
            reasons.append(reason)
        return reasons

    def _implausible(self, request: TrainRequest, update: TrainReply, known: _Known) -> str | None:
        """Why no honest client can have sent an update of the right form; None: it is plausible."""
        method, plausible = request.plan.method, measurable(update.buffers, self._layout)
        if plausible and method.uses("plausible"):
            rates = partial(known.rates, request)
            plausible = method.plausible(update, request.received, request.plan.local, rates)
        return None if plausible else "not plausible"

    def _guarded(
        self, guard: BoundsCheck, answers: Iterator[Answer], server: Server, memory: State
    ) -> Iterator[Answer]:
        """The answers after the guard has compared their updates, in parts that fit into memory."""
        while part := list(islice(answers, self._count)):
            usable = [answer.usable for answer in part if answer.usable is not None]
            verdict = guard.judge(usable, server, memory) if usable else Verdict({}, {})
            for answer in part:
                factor = verdict.shortened.get(answer.client, 1.0)
                if answer.update is not None and factor < 1:
                    answer = answer._replace(update=shorten(answer.update, factor), shortened=factor)
                if answer.reason is None and answer.client in verdict.rejected:
                    answer = answer._replace(reason=verdict.rejected[answer.client])
                yield answer

    def _compared(self, answers: list[Answer], server: Server, memory: State) -> list[Answer]:
        """The answers after the experiment's screens have compared the updates of the whole round."""
        usable = tuple(answer.usable for answer in answers if answer.usable is not None)
        if not usable:
            return answers
        reasons: dict[int, str] = {}
        cohort = Cohort(server.model, server.buffers, usable, self._layout)
        for screen in self._screens:
            reasons = screen.judge(cohort, memory[LAST], memory) | reasons
        accepted = tuple(update for update in usable if update.client not in reasons)
        for screen in self._screens:
            memory |= screen.remember(replace(cohort, updates=accepted), memory)
        return [answer._replace(reason=answer.reason or reasons.get(answer.client)) for answer in answers]


class _Known:
    """What the server knows of a round's answers before they arrive; worked out once for clients alike."""

    def __init__(self) -> None:
        self._steps: dict[tuple[int, int | None], int] = {}
        self._rates: dict[tuple[int, int, int | None], Rates] = {}

    def asked(self, request: TrainRequest) -> Asked:
        """What is known of the reply to a request."""
        samples = request.samples.shape[0]
        steps = self._steps.get((samples, request.steps))
        if steps is None:
            found = Asked.by(request)
            steps = self._steps[samples, request.steps] = found.steps
        return Asked(request.client, request.round, samples, steps)

    def rates(self, request: TrainRequest) -> Rates:
        """The learning rates of a client that makes all its steps."""
        key = request.round, request.samples.shape[0], request.steps
        if key not in self._rates:
            self._rates[key] = rates(request, workload(request, batch_norm=False))
        return self._rates[key]
