"""Which client trains when, under an asynchronous clock: a simulation of events that needs no training.

How long a client takes doesn't depend on what it computes, so the experiment alone determines the order of
all events. They are simulated turn by turn: a turn ends when the server moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mnemos.clocks.pace import Pace
from mnemos.common import rng
from mnemos.data.partition import Ints
from mnemos.selection import Selection

if TYPE_CHECKING:
    from mnemos.clocks.asynchronous import AsynchronousClock


@dataclass(frozen=True)
class InFlight:
    """A client that has been sent a model and hasn't answered yet."""

    client: int
    version: int
    """How many times the server had moved when it sent the model."""
    due: float
    """When the answer arrives."""


class Standing(NamedTuple):
    """The state of the simulation at one moment."""

    time: float = 0.0
    in_flight: tuple[InFlight, ...] = ()
    """In the order in which they were sent their models."""


class Turn(NamedTuple):
    """What happens from one move of the server to the next."""

    started: tuple[InFlight, ...]
    """The clients that are sent a model."""
    arrived: tuple[InFlight, ...]
    """The clients whose updates arrive, in the order in which they were sent their models."""
    after: Standing


class EventSchedule:
    """The turns of an experiment, one after the other."""

    def __init__(self, clock: AsynchronousClock, slots: int, pace: Pace, selection: Selection) -> None:
        """`slots`: how many clients train at a time."""
        self.clock, self.slots, self._pace, self._selection = clock, slots, pace, selection
        self._turns: list[Turn] = []

    def cohort(self, round: int) -> Ints:
        """The clients that are sent a model in a turn: the counterpart of a synchronous round's cohort."""
        while len(self._turns) < round:
            before = self._turns[-1].after if self._turns else Standing()
            self._turns.append(self.turn(len(self._turns) + 1, before))
        return np.array([job.client for job in self._turns[round - 1].started], np.int64)

    def turn(self, round: int, before: Standing) -> Turn:
        """The turn of a round, counted from 1, after the moment `before`.

        A free slot is filled at once, with a client that isn't training and has no update in the buffer. If
        several things happen at the same instant, arrivals come first, until the buffer is full. Then the
        server moves, the free slots are filled, and the next turn takes in the arrivals that are left.
        """
        time, flying = before.time, list(before.in_flight)
        started: list[InFlight] = []
        arrived: list[InFlight] = []

        def fill() -> None:
            for client in self._draw(round, len(arrived), self.slots - len(flying), (*flying, *arrived)):
                job = InFlight(client, round - 1, time + self._pace.duration(client, round))
                flying.append(job)
                started.append(job)

        fill()
        while len(arrived) < self.clock.buffer:
            if arrived and all(job.due > time for job in flying):
                fill()
            if not flying:
                break  # fewer clients can be reached than the buffer takes
            first = min(flying, key=lambda job: job.due)  # of several, the one that was sent its model first
            flying.remove(first)
            arrived.append(first)
            time = first.due
        in_order = tuple(job for job in (*before.in_flight, *started) if job in arrived)
        return Turn(tuple(started), in_order, Standing(time, tuple(flying)))

    def _draw(self, round: int, arrived: int, count: int, busy: Sequence[InFlight]) -> list[int]:
        """Clients for free slots; fewer than `count` if no more can be reached or hold samples."""
        flow = self._pace.flow
        eligible = self._selection.reachable(flow.eligible(round), round, self._pace.seed)
        if busy:
            everyone = np.arange(eligible) if isinstance(eligible, int) else eligible
            eligible = everyone[~np.isin(everyone, [job.client for job in busy])]
        count = min(count, eligible if isinstance(eligible, int) else len(eligible))
        if not count:
            return []
        # The first draw of a turn has the key of a synchronous round, so that both can draw the same clients.
        key = (round, arrived) if arrived else (round,)
        generator = rng.numpy_generator(self._pace.seed, "selection", *key)
        drawn = self._selection.select(eligible, count, generator)
        return [client for client in drawn.tolist() if len(flow.samples(client, round))]
