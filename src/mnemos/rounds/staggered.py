"""Clients that train at their own pace: what they send is applied when it arrives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mnemos.clocks.asynchronous import Asynchronous
from mnemos.data.streams.tasks import Tasks
from mnemos.engines.engine import Lost, Runner
from mnemos.errors import ConfigError
from mnemos.experiment import Experiment
from mnemos.faults.fault import Pretence
from mnemos.measures.measure import Record
from mnemos.measures.task_forgetting import TaskForgetting
from mnemos.message import Task
from mnemos.methods.exchange import Server, State, Update
from mnemos.methods.part import Correction, ServerStep, Single
from mnemos.models.mixed import Mixed
from mnemos.rounds.arrivals import Check, rejected, vanishes
from mnemos.rounds.attempts import spoilt
from mnemos.rounds.flights import Flights
from mnemos.rounds.groups import Gathering, Group, Progress, remembered
from mnemos.rounds.states import Shelves
from mnemos.rounds.traffic import Flight, Traffic
from mnemos.screens.sound import NOT_FINITE
from mnemos.selection import Poisson

_SPOILT = "federation.spoilt"
"""Clients that were due since something finite has come, and how many updates each has sent that weren't."""
_PATIENCE = 10
"""Updates in a row that may be spoilt by bad clients alone, of however few that train at a time."""


class Staggered(Group):
    """A group whose server moves when so many updates have arrived.

    What a client under way computes is settled when it is sent its model. So nobody is computed before one of
    them is needed, and then all who are under way are, as one cohort: also where the server moves for each
    single update, cores are kept busy.
    """

    def __init__(self, *args: Any, traffic: Traffic) -> None:
        super().__init__(*args)
        self._traffic = traffic

    def meet(
        self, number: int, server: Server, states: Shelves, runner: Runner, checks: tuple[Check, ...]
    ) -> Progress:
        """Up to the server's next move."""
        before = Flights.of(server.state)
        turn = self._traffic.turn(number, before.standing)
        now = Server(server.model, server.buffers, self.method.broadcast(server))
        sent = {**before.sent, number - 1: now}

        def tasks(flights: Iterable[Flight]) -> Iterator[Task]:
            for version, together in groupby(flights, key=lambda flight: flight.version):
                clients = np.array([flight.client for flight in together])
                yield from self.tasks(version + 1, clients, sent[version], states, runner)

        updates: dict[int, Update | Lost] = dict(before.updates)
        if any(flight.client not in updates for flight in turn.arrived):
            missing = [f for f in (*before.standing.flights, *turn.sent) if f.client not in updates]
            heard = (
                task for task in tasks(missing) if not vanishes(self.experiment, task.client, task.round)
            )
            updates |= {update.client: update for update in runner.run(heard)}
        origins = {flight.client: sent[flight.version] for flight in turn.arrived}

        def start(client: int) -> tuple[Tensor, Tensor]:
            return origins[client].model, origins[client].buffers

        nothing = server.model[:0]  # of what only those go by who are refused here
        memory = remembered(server)
        arriving = self._arrivals.of(
            _Ready(runner, updates), tasks(turn.arrived), server, nothing, memory, checks
        )
        late = {flight.client: number - 1 - flight.version for flight in turn.arrived}
        inner = self._gathering(server, number, len(turn.arrived))
        gathering = _Late(inner, self._traffic.clock, server, origins, late)
        watches = self._one_by_one(number, np.array([*origins]), start)
        done = self._gather(number, arriving, server, states, gathering, watches, start, memory)
        done.received = self.received(done.server) * len(turn.sent)
        done.records.append(Record(number, "time", turn.after.time))
        flying = {flight.client for flight in turn.after.flights}
        left = {who: one for who, one in updates.items() if who in flying and isinstance(one, Update)}
        done.server = Flights(turn.after, sent, left).into(done.server)
        spoilt = self._spoilt(number, server, done)
        done.server.state[_SPOILT] = torch.tensor([*spoilt.items()], dtype=torch.int64).view(-1, 2)
        return done

    def _spoilt(self, number: int, before: Server, done: Progress) -> dict[int, int]:
        """How many updates in a row were not finite, by client; where nothing else comes, it ends.

        There is no other cohort to try, so one waits for as many as some cohorts would have; and more than
        half of the clients that were due in that time must have sent some.
        """
        astray = {record.client for record in done.records if record.name == rejected(NOT_FINITE)}
        if not astray.issuperset(done.arrived):
            return {}
        counts = Counter(dict(before.state[_SPOILT].tolist()) if _SPOILT in before.state else {})
        for client in (record.client for record in done.records if record.client is not None):
            counts[client] += client in astray  # or it was dropped: there is no record of anybody else
        enough = max(_PATIENCE, (self.experiment.retries + 1) * self._traffic.slots)
        if counts.total() >= enough and 2 * sum(map(bool, counts.values())) > len(counts):
            raise spoilt(number)
        return counts

    def _broadcast(self, server: Server) -> State:
        """What is kept of a server that clients were sent holds nothing else."""
        return server.state


class _Ready(Runner):
    """Hands over what has been computed, in the place of an engine."""

    def __init__(self, runner: Runner, updates: Mapping[int, Update | Lost]) -> None:
        super().__init__(runner.engine, runner.plan)
        self._updates = updates

    def run(self, cohort: Iterable[Task]) -> Iterator[Update | Lost]:
        """The clients' updates."""
        return (self._updates[task.client] for task in cohort)


class _Late:
    """Gives updates that are late less weight, and their changes from where the server is by then."""

    def __init__(
        self,
        inner: Gathering,
        clock: Asynchronous,
        server: Server,
        origins: Mapping[int, Server],
        late: Mapping[int, int],
    ) -> None:
        """`origins`: what clients were sent; `late`: how often the server has moved since."""
        self._inner, self._clock, self._server = inner, clock, server
        self._origins, self._late = origins, late
        self._used: list[int] = []

    def add(self, update: Update) -> None:
        client, delta = update.client, update.delta
        if self._clock.applies == "model":
            delta = delta + (self._origins[client].model - self._server.model)
        weight = self._clock.weight(self._late[client])
        buffers = torch.lerp(self._server.buffers, update.buffers, weight)
        self._inner.add(replace(update, delta=weight * delta, buffers=buffers))
        self._used.append(client)

    def result(self, number: int) -> tuple[Server, list[Record]]:
        server, records = self._inner.result(number)
        late = (Record(number, "staleness", float(self._late[who]), client=who) for who in self._used)
        return server, [*records, *late]


_SAME = "clients that are sent the same model; under an asynchronous clock they aren't"


def check_clock(experiment: Experiment) -> None:
    """Refuse what takes clients that are sent the same model at the same time, if they aren't."""
    clock, method, stream = experiment.clock, experiment.method, experiment.stream
    if not isinstance(clock, Asynchronous):
        return
    in_step = [type(part).name for part in method.parts if part.in_step]
    compared = [type(screen).name for screen in experiment.screens if screen.in_step]
    weighting, server, correction = method.weighting, method.server, method.correction
    sentences = (
        (
            isinstance(experiment.model, Mixed),
            "model",
            "found mixed; an asynchronous clock is for one model that all clients share",
        ),
        (
            isinstance(stream, Tasks) and stream.advance == "lazy",
            "stream.advance",
            "found lazy, which goes by the cohorts of synchronous rounds; allowed with this clock: clock",
        ),
        (
            not isinstance(weighting, Single),
            "method.weighting",
            f"found {type(weighting).name}, which needs {_SAME}",
        ),
        (bool(in_step), "method", f"found {' and '.join(in_step)}, made for {_SAME}"),
        (
            clock.applies == "model" and type(server).fold is not ServerStep.fold,
            "clock.applies",
            f"found model, which the server step {type(server).name} can't average; allowed: change",
        ),
        (
            clock.applies == "model" and type(correction).delta is not Correction.delta,
            "clock.applies",
            f"found model, but with correction {type(correction).name} clients send none; allowed: change",
        ),
        (
            isinstance(experiment.selection, Poisson),
            "selection",
            "found poisson, which doesn't say how many it draws; a place that is free takes one client",
        ),
        (bool(compared), "screens", f"found {' and '.join(compared)}, made for {_SAME}"),
        (
            any(isinstance(fault, Pretence) for fault in experiment.faults),
            "faults",
            f"found free riders, who pass for {_SAME}",
        ),
        (bool(experiment.evaluate.forgetting), "evaluate.forgetting", f"found a measure which needs {_SAME}"),
        (
            any(isinstance(one, TaskForgetting) for one in experiment.measures),
            "measures.task-forgetting",
            f"found a measure which needs {_SAME}",
        ),
    )
    for wrong, field, sentence in sentences:
        if wrong:
            raise ConfigError(sentence, field)
