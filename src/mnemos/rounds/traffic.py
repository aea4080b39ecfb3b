"""Who trains when, under an asynchronous clock: a simulation of events that needs no training.

What a client sends doesn't change how long it takes, so the whole course of things is a function of the
experiment alone. It is told turn by turn: a turn ends when the server moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mnemos import rng
from mnemos.clocks.asynchronous import Asynchronous
from mnemos.clocks.clock import Timed
from mnemos.clocks.speeds import Speeds
from mnemos.data.partition import Ints
from mnemos.data.stream import Flow
from mnemos.errors import ConfigError
from mnemos.experiment import Experiment
from mnemos.local import Local
from mnemos.selection import Selection


@dataclass(frozen=True)
class Flight:
    """A client on its way: it has been sent a model and has yet to answer."""

    client: int
    version: int
    """How many times the server had moved when it sent the model."""
    due: float
    """When the answer arrives."""


class Standing(NamedTuple):
    """What goes on at a moment."""

    time: float = 0.0
    flights: tuple[Flight, ...] = ()
    """In the order in which they were sent."""


class Turn(NamedTuple):
    """What happens from one move of the server to the next."""

    sent: tuple[Flight, ...]
    arrived: tuple[Flight, ...]
    """Both in the order in which they were sent."""
    after: Standing


@dataclass(frozen=True)
class Pace:
    """How long clients take in simulated time."""

    speeds: Speeds
    flow: Flow
    local: Local
    seed: int

    def steps(self, client: int, number: int) -> int:
        """Of one of a client's rounds; none, if it has nothing to train on."""
        local, samples = self.local, len(self.flow.samples(client, number))
        return (local.steps or local.epochs * -(-samples // local.batch)) if samples else 0

    def duration(self, client: int, number: int) -> float:
        """Of one of a client's rounds: its steps times its time a step."""
        steps, population = self.steps(client, number), self.flow.assignment.clients
        return self.speeds.duration(client, steps, number, population, self.seed)


def pace_of(experiment: Experiment, flow: Flow) -> Pace | None:
    """How long clients take, if the experiment has a clock that says so."""
    clock, clients = experiment.clock, flow.assignment.clients
    if not isinstance(clock, Timed):
        return None
    unknown = [client for client in clock.speeds.times if client >= clients]
    if unknown:
        raise ConfigError(
            f"there is no client {min(unknown)}; allowed: 0 to {clients - 1}", "clock.speeds.times"
        )
    return Pace(clock.speeds, flow, experiment.plan.local, experiment.seed)


class Traffic:
    """Turn after turn of an experiment."""

    def __init__(self, clock: Asynchronous, slots: int, pace: Pace, selection: Selection) -> None:
        """`slots`: how many clients train at a time."""
        self.clock, self.slots, self._pace, self._selection = clock, slots, pace, selection
        self._told: list[Turn] = []

    def cohort(self, number: int) -> Ints:
        """The clients that are sent a model in a turn, as a round's cohort is in a synchronous federation."""
        while len(self._told) < number:
            before = self._told[-1].after if self._told else Standing()
            self._told.append(self.turn(len(self._told) + 1, before))
        return np.array([flight.client for flight in self._told[number - 1].sent], np.int64)

    def turn(self, number: int, before: Standing) -> Turn:
        """A turn, numbered from 1, and what goes on after it.

        A slot that becomes free is filled at once, with a client that is neither under way nor waits in the
        buffer. Of what happens at the same instant, arrivals come first, until the buffer is full; then the
        server moves and slots are filled, before the next turn takes in the other arrivals.
        """
        time, flying = before.time, list(before.flights)
        sent: list[Flight] = []
        arrived: list[Flight] = []

        def fill() -> None:
            for client in self._draw(number, len(arrived), self.slots - len(flying), (*flying, *arrived)):
                flight = Flight(client, number - 1, time + self._pace.duration(client, number))
                flying.append(flight)
                sent.append(flight)

        fill()
        while len(arrived) < self.clock.buffer:
            if arrived and all(flight.due > time for flight in flying):
                fill()
            if not flying:
                break  # there are fewer clients to be had than the buffer takes
            first = min(flying, key=lambda flight: flight.due)  # of equals the one that was sent first
            flying.remove(first)
            arrived.append(first)
            time = first.due
        in_order = tuple(flight for flight in (*before.flights, *sent) if flight in arrived)
        return Turn(tuple(sent), in_order, Standing(time, tuple(flying)))

    def _draw(self, number: int, arrived: int, count: int, busy: Sequence[Flight]) -> list[int]:
        """New clients for free slots: as many as there are, and have something to train on."""
        flow = self._pace.flow
        eligible = self._selection.reachable(flow.eligible(number), number, self._pace.seed)
        if busy:
            everyone = np.arange(eligible) if isinstance(eligible, int) else eligible
            eligible = everyone[~np.isin(everyone, [flight.client for flight in busy])]
        count = min(count, eligible if isinstance(eligible, int) else len(eligible))
        if not count:
            return []
        # The first time in a turn with the key of a synchronous round, so that one can be like the other.
        key = (number, arrived) if arrived else (number,)
        generator = rng.numpy_generator(self._pace.seed, "selection", *key)
        drawn = self._selection.select(eligible, count, generator)
        return [client for client in drawn.tolist() if len(flow.samples(client, number))]


def traffic_of(experiment: Experiment, flow: Flow, cohort: int) -> Traffic | None:
    """Who trains when, under an asynchronous clock; `cohort` clients at a time unless it says otherwise."""
    clock, pace = experiment.clock, pace_of(experiment, flow)
    if not isinstance(clock, Asynchronous) or pace is None:
        return None
    clients = int(np.count_nonzero(flow.assignment.train_sizes()))
    for field, found in (("concurrency", clock.concurrency), ("buffer", clock.buffer)):
        if found is not None and found > clients:
            raise ConfigError(
                f"found {found}; allowed: at most {clients}, the number of clients with samples",
                f"clock.{field}",
            )
    return Traffic(clock, clock.concurrency or cohort, pace, experiment.selection)
