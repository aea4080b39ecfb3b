"""Which clients take part in a round."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from pydantic import Field

from mnemos.common.registry import Part, Registry
from mnemos.common.rng import numpy_generator
from mnemos.data.partition import Ints


class Selection(Part):
    """How the cohort of a round is drawn."""

    fixed_size: ClassVar[bool] = True
    """Whether a cohort has as many clients as are asked for, and not only on average."""
    private: ClassVar[bool] = False
    """Whether a bound on ε is known for such cohorts; each class says so for itself."""

    def reachable(self, eligible: Ints | int, round: int, seed: int) -> Ints | int:
        """The eligible clients that can be asked in a round.

        `eligible`, like the result, is an array of clients, or their number N, which stands for 0 … N − 1.
        """
        return eligible

    @abstractmethod
    def select(self, eligible: Ints | int, count: int, rng: np.random.Generator) -> Ints:
        """`count` different clients, exactly or on average, of the eligible ones (an array or a number)."""


selections: Registry[Selection] = Registry("selection", Selection, "mnemos.selection")


@selections.register("uniform")
class UniformSelection(Selection):
    """Draws clients uniformly without replacement, in time and memory proportional to the cohort."""

    private: ClassVar[bool] = True

    def select(self, eligible: Ints | int, count: int, rng: np.random.Generator) -> Ints:
        """A random cohort, in increasing order."""
        population = eligible if isinstance(eligible, int) else len(eligible)
        # Positions first: `choice` on an array of a million would copy it.
        drawn = np.sort(rng.choice(population, count, replace=False, shuffle=False))
        return drawn if isinstance(eligible, int) else eligible[drawn]


@selections.register("poisson")
class Poisson(UniformSelection):
    """Draws each client independently with the same probability; a cohort may have any size, or be empty.

    The probability is that of `uniform`, so that cohorts have the same size on average.
    """

    fixed_size: ClassVar[bool] = False
    private: ClassVar[bool] = True

    def select(self, eligible: Ints | int, count: int, rng: np.random.Generator) -> Ints:
        """A cohort of `count` clients on average, in increasing order."""
        population = eligible if isinstance(eligible, int) else len(eligible)
        # The size of such a cohort is binomial, and given its size it is uniform.
        return super().select(eligible, int(rng.binomial(population, count / population)), rng)


@selections.register("available")
class Available(UniformSelection):
    """Draws uniformly among the available clients: each is available for a part of every simulated day.

    Client k is available in round t if the fractional part of (t − 1) / day + φₖ is less than `share`, with
    φₖ drawn once from [0, spread).
    """

    day: int = Field(24, ge=1, description="rounds a day has")
    share: float = Field(0.5, gt=0, le=1, description="part of the day for which a client is there")
    spread: float = Field(
        1.0, ge=0, le=1, description="part of the day over which clients' mornings are spread; 0: all at once"
    )

    def reachable(self, eligible: Ints | int, round: int, seed: int) -> Ints | int:
        """The eligible clients that are available at this time of day."""
        clients = np.arange(eligible) if isinstance(eligible, int) else eligible
        if not len(clients):
            return clients
        # Drawn for all clients up to the last, so that a client's φ doesn't depend on which are eligible.
        begins = self.spread * numpy_generator(seed, "availability").random(int(clients.max()) + 1)[clients]
        hour = (round - 1) % self.day / self.day
        available: Ints = clients[(hour + begins) % 1 < self.share]
        return available
