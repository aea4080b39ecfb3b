"""Who takes part in a round."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from pydantic import Field

from mnemos.data.partition import Ints
from mnemos.registry import Part, Registry
from mnemos.rng import numpy_generator


class Selection(Part):
    """How a cohort is drawn."""

    def reachable(self, eligible: Ints | int, round: int, seed: int) -> Ints | int:
        """Those of the eligible (an array, or the number of clients) that can be asked in a round."""
        return eligible

    @abstractmethod
    def select(self, eligible: Ints | int, count: int, rng: np.random.Generator) -> Ints:
        """`count` different clients, or so many on average, of those eligible (an array, or their number)."""


selections: Registry[Selection] = Registry("selection", Selection, "mnemos.selection")


@selections.register("uniform")
class Uniform(Selection):
    """Uniformly without replacement; time and memory depend on the cohort, not on the population."""

    def select(self, eligible: Ints | int, count: int, rng: np.random.Generator) -> Ints:
        """A random cohort, in increasing order."""
        population = eligible if isinstance(eligible, int) else len(eligible)
        # Positions first: `choice` on an array of a million would copy it.
        drawn = np.sort(rng.choice(population, count, replace=False, shuffle=False))
        return drawn if isinstance(eligible, int) else eligible[drawn]


@selections.register("poisson")
class Poisson(Uniform):
    """Each client by a draw of its own, all with the same probability; a cohort may be of any size, or empty.

    The probability is that of `uniform`, so that cohorts have the same size on average.
    """

    def select(self, eligible: Ints | int, count: int, rng: np.random.Generator) -> Ints:
        """So many on average, in increasing order."""
        population = eligible if isinstance(eligible, int) else len(eligible)
        # How many of so many draws hit is binomial, and which ones is anybody's guess.
        return super().select(eligible, int(rng.binomial(population, count / population)), rng)


@selections.register("available")
class Available(Uniform):
    """Uniformly among those that are there: each client for a part of the day, from a time of its own on.

    Client k is there in round t if the fraction of (t − 1) / day + φₖ is less than `share`, with φₖ drawn
    once from [0, spread).
    """

    day: int = Field(24, ge=1, description="rounds a day has")
    share: float = Field(0.5, gt=0, le=1, description="part of the day for which a client is there")
    spread: float = Field(
        1.0, ge=0, le=1, description="part of the day over which clients' mornings are spread; 0: all at once"
    )

    def reachable(self, eligible: Ints | int, round: int, seed: int) -> Ints | int:
        """By the time of day."""
        clients = np.arange(eligible) if isinstance(eligible, int) else eligible
        if not len(clients):
            return clients
        # All numbers up to the last, so that a client's morning doesn't depend on who else is eligible.
        begins = self.spread * numpy_generator(seed, "availability").random(int(clients.max()) + 1)[clients]
        hour = (round - 1) % self.day / self.day
        there: Ints = clients[(hour + begins) % 1 < self.share]
        return there
