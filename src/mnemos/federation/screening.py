"""Checks of updates before they are aggregated: form, plausibility, the guard, the experiment's screens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat

from mnemos.client.requests import TrainRequests, sizes
from mnemos.client.trainer import intra_op
from mnemos.client.workload import rates, workload
from mnemos.experiment.experiment import Experiment
from mnemos.faults.asking import Answers
from mnemos.faults.misconduct import LAST
from mnemos.federation.round import Check
from mnemos.methods.exchange import Cohort, Rates, Server, State, TrainReply
from mnemos.methods.replies import TrainReplies
from mnemos.screens.guard import BoundsCheck, Verdict, shorten
from mnemos.screens.sound import Asked, Form, Together, measurable
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
        self, answers: Iterator[Answers], server: Server, memory: State, checks: tuple[Check, ...]
    ) -> Iterator[Answers]:
        """The answers, in order, with the reasons for which updates are rejected; adds to the memory."""
        sound = self._sound(answers, checks)
        guarded = sound if self._guard is None else self._guarded(self._guard, sound, server, memory)
        return iter(self._compared(list(guarded), server, memory)) if self._screens else guarded

    def _sound(self, answers: Iterator[Answers], checks: tuple[Check, ...]) -> Iterator[Answers]:
        """The answers after each update has been checked by itself."""
        # As they come, so that none has to be kept; in parts if the guard keeps as many anyway.
        known = _Known()
        for part in _parts(answers, 1 if self._guard is None else self._count):
            with intra_op(1):  # more threads wait for each other longer than these sums take
                reasons = self._reasons(part, checks, known)
            yield from (some.rejecting(own) for some, own in zip(part, reasons, strict=True))

    def _reasons(
        self, part: Sequence[Answers], checks: tuple[Check, ...], known: _Known
    ) -> list[dict[int, str]]:
        """Why updates can't be used, from each update by itself, by their indices in each of the answers."""
        found: list[dict[int, str]] = [{} for _ in part]
        single: list[tuple[int, int, TrainReply, Asked, bool]] = []
        for place, some in enumerate(part):
            if some.updates is None:
                continue
            asked = known.asked(some.requests)
            if not (some.trained and self._form.all_sound(some.updates, asked)):
                each = enumerate(zip(some.updates, asked.each, strict=True))
                single += [(place, index, update, own, some.trained) for index, (update, own) in each]
        flaws = self._form.flaws([own[2:] for own in single])
        for (place, index, *_), flaw in zip(single, flaws, strict=True):
            if flaw is not None:
                found[place][index] = flaw
        for some, reasons in zip(part, found, strict=True):
            if some.updates is not None:
                reasons |= self._implausible(some, some.updates, reasons, known)
                reasons |= self._failing(some.updates, {**some.reasons, **reasons}, checks)
        return found

    def _implausible(
        self, answers: Answers, updates: TrainReplies, flawed: Mapping[int, str], known: _Known
    ) -> dict[int, str]:
        """Which updates of the right form no honest client can have sent, by index."""
        requests = answers.requests
        plan, by_method = requests.plan, requests.plan.method.uses("plausible")
        if updates.in_columns and not by_method and measurable(updates.columns.buffers, self._layout):
            return {}
        found = {}
        for index, update in enumerate(updates):
            if index in flawed or index in answers.reasons:
                continue
            plausible = measurable(update.buffers, self._layout)
            if plausible and by_method:
                received = requests.broadcasts[requests.clients[index]].received
                rates = partial(known.rates, requests, index)
                plausible = plan.method.plausible(update, received, plan.local, rates)
            if not plausible:
                found[index] = "not plausible"
        return found

    def _failing(
        self, updates: TrainReplies, flawed: Mapping[int, str | None], checks: tuple[Check, ...]
    ) -> dict[int, str]:
        """Which updates some check rejects, by index, with the reason."""
        found = {}
        for index, update in enumerate(updates) if checks else ():
            if index not in flawed:
                reason = next(filter(None, (check(update, self._layout) for check in checks)), None)
                if reason is not None:
                    found[index] = reason
        return found

    def _guarded(
        self, guard: BoundsCheck, answers: Iterator[Answers], server: Server, memory: State
    ) -> Iterator[Answers]:
        """The answers after the guard has compared their updates, in parts that fit into memory."""
        for part in _parts(answers, self._count):
            usable = [updates for some in part if (updates := some.usable)]
            verdict = guard.judge(TrainReplies.joined(usable), server, memory) if usable else Verdict({}, {})
            for some in part:
                if some.updates is not None and verdict.shortened:
                    some = _shortened(some, some.updates, verdict.shortened)
                yield _rejected(some, verdict.rejected)

    def _compared(self, answers: list[Answers], server: Server, memory: State) -> list[Answers]:
        """The answers after the experiment's screens have compared the updates of the whole round."""
        usable = tuple(update for some in answers for update in some.usable)
        if not usable:
            return answers
        reasons: dict[int, str] = {}
        cohort = Cohort(server.model, server.buffers, usable, self._layout)
        for screen in self._screens:
            reasons = screen.judge(cohort, memory[LAST], memory) | reasons
        accepted = tuple(update for update in usable if update.client not in reasons)
        for screen in self._screens:
            memory |= screen.remember(replace(cohort, updates=accepted), memory)
        return [_rejected(some, reasons) for some in answers]


def _parts(answers: Iterator[Answers], count: int) -> Iterator[list[Answers]]:
    """The answers in parts of at least `count` clients, except for the last."""
    part: list[Answers] = []
    size = 0
    for some in answers:
        part.append(some)
        size += len(some.clients)
        if size >= count:
            yield part
            part, size = [], 0
    if part:
        yield part


def _shortened(answers: Answers, updates: TrainReplies, factors: Mapping[int, float]) -> Answers:
    """The answers with some clients' updates shortened."""
    own = {index: factors[client] for index, client in enumerate(answers.clients) if client in factors}
    if not own:
        return answers
    changed = [shorten(update, own[k]) if k in own else update for k, update in enumerate(updates)]
    return replace(answers, updates=TrainReplies(changed), shortened=own)


def _rejected(answers: Answers, reasons: Mapping[int, str]) -> Answers:
    """The answers with the updates of some clients rejected, as far as they have sent any."""
    if not reasons:
        return answers
    return answers.rejecting(
        {index: reasons[client] for index, client in enumerate(answers.clients) if client in reasons}
    )


class _Known:
    """What the server knows of a round's answers before they arrive; worked out once for clients alike."""

    def __init__(self) -> None:
        self._steps: dict[tuple[int, int | None], int] = {}
        self._rates: dict[tuple[int, int, int | None], Rates] = {}

    def asked(self, requests: TrainRequests) -> Together:
        """What is known of the replies to some requests."""
        clients, broadcasts, limits = [*requests.clients], requests.broadcasts, requests.limits
        samples = sizes(requests)
        keys = [*zip(samples, map(limits.get, clients) if limits else repeat(None), strict=False)]
        for key in dict.fromkeys(keys):
            if key not in self._steps:
                size, limit = key
                whole = requests.plan.local.round_steps(size)
                self._steps[key] = whole if limit is None else min(whole, limit)
        rounds = [broadcasts[client].round for client in clients]
        return Together(clients, rounds, samples, [self._steps[key] for key in keys])

    def rates(self, requests: TrainRequests, index: int) -> Rates:
        """The learning rates of a client that makes all its steps."""
        client, size, limits = requests.clients[index], requests.samples[index].shape[0], requests.limits
        key = requests.broadcasts[client].round, size, limits.get(client)
        if key not in self._rates:
            request = requests[index]
            self._rates[key] = rates(request, workload(request, batch_norm=False))
        return self._rates[key]
