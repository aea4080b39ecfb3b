"""Whom a synchronous server waits for, and for how long, in simulated time.

How long a client takes doesn't depend on what it computes. So it is known beforehand who will be too late,
and nobody trains for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mnemos.clocks.clock import Synchronous
from mnemos.data.stream import Flow
from mnemos.engines.engine import ENOUGH
from mnemos.experiment import Experiment
from mnemos.rounds.arrivals import Conditions
from mnemos.rounds.traffic import Pace, pace_of

DEADLINE = "deadline"
"""Why clients are dropped that the round was over for by the clock."""


@dataclass(frozen=True)
class Waiting:
    """The rounds of a timed, synchronous federation."""

    clock: Synchronous
    pace: Pace
    takes: int | None
    """How many clients a round takes, of however many are asked; None: all."""
    partial: bool
    """Whether a client that is out of time may send what it has done."""

    def conditions(
        self, cohort: Iterable[int], number: int, attempt: int, vanishes: Callable[[int], bool]
    ) -> Conditions:
        """Of an attempt at a round: who will be too late, and who has to stop before it is through."""
        late: dict[int, str] = {}
        steps: dict[int, int] = {}
        arriving: list[tuple[float, int]] = []
        for client in cohort:
            if not self.pace.steps(client, number) or vanishes(client):
                continue
            done = self._done(client, number)
            if done < 1:
                late[client] = DEADLINE
                continue
            if done < self.pace.steps(client, number):
                steps[client] = done
            arriving.append((self._taken(client, number), client))
        if self.takes is not None:
            late |= {client: ENOUGH for _, client in sorted(arriving)[self.takes :]}
        return Conditions(attempt, late, steps)

    def lasts(self, arrived: Sequence[int], asked: int, number: int) -> float:
        """How long an attempt takes of which so many clients were asked and these were heard of.

        The server waits until as many have arrived as it takes, or all; if some never do, to the deadline.
        """
        enough = asked if self.takes is None else min(self.takes, asked)
        if self.clock.deadline is not None and len(arrived) < enough:
            return self.clock.deadline
        return max((self._taken(client, number) for client in arrived), default=0.0)

    def _done(self, client: int, number: int) -> int:
        """The steps that a client comes to before the deadline: all, those it may stop after, or none."""
        steps, time = self.pace.steps(client, number), self.pace.duration(client, number)
        deadline = self.clock.deadline
        if deadline is None or time <= deadline:
            return steps
        return int(steps * deadline / time) if self.partial else 0

    def _taken(self, client: int, number: int) -> float:
        time = self.pace.duration(client, number)
        return time if self.clock.deadline is None else min(time, self.clock.deadline)


def waiting_of(experiment: Experiment, flow: Flow, cohort: int) -> Waiting | None:
    """Whom the server waits for, if the experiment has rounds that are timed."""
    clock, pace = experiment.clock, pace_of(experiment, flow)
    if not isinstance(clock, Synchronous) or pace is None:
        return None
    takes = cohort if clock.over_selection else None
    return Waiting(clock, pace, takes, clock.partial and experiment.method.partial)
