"""Which clients a synchronous server waits for, and for how long, in simulated time.

How long a client takes doesn't depend on what it computes. So the server knows before training which clients
will be too late, and the engine doesn't train them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mnemos.clocks.pace import Pace
from mnemos.engines.engine import ENOUGH

DEADLINE = "deadline"
"""The reason on record for a client that doesn't answer before the deadline."""


@dataclass(frozen=True)
class Waiting:
    """The rounds of a timed, synchronous federation."""

    deadline: float | None
    """How long the server waits for a round's clients; None: until all have answered."""
    pace: Pace
    takes: int | None
    """How many clients a round takes, of those that are asked; None: all."""
    partial: bool
    """Whether a client that reaches the deadline may send what it has done so far."""

    def late(self, clients: Iterable[int], round: int) -> tuple[dict[int, str], dict[int, int]]:
        """(clients that will be too late, with the reason; clients that stop early, with their steps).

        `clients`: those of a cohort that haven't dropped out.
        """
        late: dict[int, str] = {}
        steps: dict[int, int] = {}
        arriving: list[tuple[float, int]] = []
        for client in clients:
            if not self.pace.steps(client, round):
                continue
            done = self._steps_done(client, round)
            if done < 1:
                late[client] = DEADLINE
                continue
            if done < self.pace.steps(client, round):
                steps[client] = done
            arriving.append((self._time(client, round), client))
        if self.takes is not None:
            late |= {client: ENOUGH for _, client in sorted(arriving)[self.takes :]}
        return late, steps

    def duration(self, arrived: Sequence[int], asked: int, round: int) -> float:
        """How long an attempt at a round takes if `asked` clients were asked and `arrived` answered.

        The server waits for as many answers as it takes, or for all; if fewer arrive, until the deadline.
        """
        enough = asked if self.takes is None else min(self.takes, asked)
        if self.deadline is not None and len(arrived) < enough:
            return self.deadline
        return max((self._time(client, round) for client in arrived), default=0.0)

    def _steps_done(self, client: int, round: int) -> int:
        """How many steps a client makes before the deadline; 0 if it can't finish and mustn't stop early."""
        steps, time = self.pace.steps(client, round), self.pace.duration(client, round)
        if self.deadline is None or time <= self.deadline:
            return steps
        return int(steps * self.deadline / time) if self.partial else 0

    def _time(self, client: int, round: int) -> float:
        time = self.pace.duration(client, round)
        return time if self.deadline is None else min(time, self.deadline)
