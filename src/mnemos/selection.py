"""Who takes part in a round."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from mnemos.data.partition import Ints
from mnemos.registry import Part, Registry


class Selection(Part):
    """How a cohort is drawn."""

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
