"""Checks of updates before they are aggregated: form, plausibility, the guard, the experiment's screens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

from mnemos.client.messages import TrainRequest
from mnemos.client.workload import rates, workload
from mnemos.experiment.experiment import Experiment
from mnemos.faults.asking import Answer, Answers
from mnemos.faults.misconduct import LAST
from mnemos.federation.round import Check
from mnemos.methods.exchange import Cohort, Rates, Server, State
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
        # One by one as they come, so that none has to be kept. On a device in parts, because each check waits
        # for the device; the guard keeps as many anyway.
        at_once = 1 if self._guard is None or self._form.on_cpu else self._count
        while part := list(islice(answers, at_once)):
            updates = [
                (answer.update, Asked.by(request), answer.trained)
                for request, answer in part
                if answer.update is not None
            ]
            flaws = iter(self._form.flaws(updates))
            for request, answer in part:
                flaw = None if answer.update is None else next(flaws)
                yield self._checked(request, answer._replace(reason=flaw or answer.reason), checks)

    def _checked(self, request: TrainRequest, answer: Answer, checks: tuple[Check, ...]) -> Answer:
        """An answer whose form has been checked, after the checks of its numbers."""
        update, reason = answer.update, answer.reason
        if update is None:
            return answer
        if reason is None:
            whole = partial(_whole_rates, request)
            method, local = request.plan.method, request.plan.local
            plausible = measurable(update.buffers, self._layout) and method.plausible(
                update, request.received, local, whole
            )
            reason = None if plausible else "not plausible"
        if reason is None:
            reason = next(filter(None, (check(update, self._layout) for check in checks)), None)
        return answer._replace(reason=reason)

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
                yield answer._replace(reason=answer.reason or verdict.rejected.get(answer.client))

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


def _whole_rates(request: TrainRequest) -> Rates:
    """The learning rates of a client that makes all its steps."""
    return rates(request, workload(request, batch_norm=False))
