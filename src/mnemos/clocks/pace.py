"""How long clients take, in simulated time."""

from __future__ import annotations

from dataclasses import dataclass

from mnemos.clocks.speeds import Speeds
from mnemos.data.stream import Flow
from mnemos.optim.local import Local


@dataclass(frozen=True)
class Pace:
    """How long each client takes for a round: its number of steps times its time per step."""

    speeds: Speeds
    flow: Flow
    local: Local
    seed: int

    def steps(self, client: int, round: int) -> int:
        """The steps that a client makes in a round if it is asked; 0 if it has no samples then."""
        return self.local.round_steps(len(self.flow.if_asked.samples(client, round)))

    def duration(self, client: int, round: int) -> float:
        """The simulated time that a client takes for a round."""
        steps, population = self.steps(client, round), self.flow.assignment.clients
        return self.speeds.duration(client, steps, round, population, self.seed)
