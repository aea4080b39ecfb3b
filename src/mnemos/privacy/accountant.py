"""What noise is worth: ε by Rényi differential privacy, as the library dp-accounting has it."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mnemos.errors import ConfigError
from mnemos.extras import missing

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from dp_accounting.rdp import RdpAccountant


_ORDERS = (*range(2, 64), 128, 256, 512, 1024)
"""Of Rényi divergences: those of the library's that are whole numbers, as its series for the others doesn't
always converge. Without sampling there is no series."""
LEAST, MOST = 1e-9, 1e6
"""Noise, in units of the longest update, for which the library's sums neither overflow nor vanish."""
_WORTHWHILE = 0.01
"""Noise that a budget can ask for, at least: there is no privacy with less."""


@dataclass(frozen=True)
class Sampling:
    """How many clients are in a round, of how many, and how they are drawn.

    The number of clients is taken to be known to everybody.
    """

    population: int
    cohort: int
    """On average, where clients are drawn one by one."""
    poisson: bool

    @property
    def everyone(self) -> bool:
        """Whether there is no chance in it."""
        return self.cohort == self.population

    @property
    def fixed(self) -> bool:
        """Whether chance decides who is in a round, but not how many."""
        return not (self.everyone or self.poisson)

    @property
    def words(self) -> str:
        """In a few words."""
        if self.everyone:
            return f"all {self.population} clients in every round"
        if self.poisson:
            return f"each of {self.population} clients with probability {self.cohort / self.population:.4g}"
        return f"{self.cohort} of {self.population} clients, without replacement"

    @property
    def relation(self) -> str:
        """Between which federations nobody can tell the difference."""
        return (
            "a client has its own data or any other" if self.fixed else "a client takes part or sends nothing"
        )

    @property
    def bounds(self) -> tuple[Callable[[float], DpEvent], ...]:
        """What a round is, with noise in units of the longest update: each an upper bound by itself.

        The bound for a fixed number of clients, drawn without replacement, is for federations in which a
        client is replaced by another. That can turn its update around, and change the sum by 2 C. Where most
        clients are drawn, it is above what holds without any sampling, which can't make matters worse: Rényi
        divergence is quasi-convex.
        """
        library = _library()
        if self.everyone:
            return (library.GaussianDpEvent,)
        if self.poisson:
            probability = self.cohort / self.population
            return (lambda noise: library.PoissonSampledDpEvent(probability, library.GaussianDpEvent(noise)),)

        def certain(noise: float) -> DpEvent:
            return library.GaussianDpEvent(noise / 2)

        def drawn(noise: float) -> DpEvent:
            return library.SampledWithoutReplacementDpEvent(self.population, self.cohort, certain(noise))

        return drawn, certain

    def accountant(self) -> RdpAccountant:
        """An accountant to whom nothing has happened yet."""
        relations = _library().NeighboringRelation
        relation = relations.REPLACE_ONE if self.fixed else relations.REPLACE_SPECIAL
        return _library().rdp.RdpAccountant(None if self.everyone else _ORDERS, relation)


@dataclass(frozen=True)
class Accountant:
    """ε of so many rounds that are all alike."""

    sampling: Sampling
    noise: float
    delta: float

    def __post_init__(self) -> None:
        _library()  # if it is missing, that shows now

    def epsilon(self, rounds: int, again: Sequence[int] = ()) -> float:
        """After so many rounds; `again`: how often each of those was done that were done more than once.

        k sums of one cohort's updates, each with noise z, tell as much as one with noise z / √k. Where
        cohorts are drawn that is more than k rounds do, which have a cohort each.
        """
        orders, curve = _curve(self.sampling, self.noise)
        total = (rounds - len(again)) * curve
        for times, count in Counter(again).items():
            total = total + count * _curve(self.sampling, self.noise / math.sqrt(times))[1]
        epsilon, _ = _library().rdp.compute_epsilon(orders, total, self.delta)
        return float(epsilon)

    def rounds(self, budget: float, most: int) -> int:
        """How many rounds a budget allows, of so many."""
        if self.epsilon(most) <= budget:
            return most
        enough, beyond = 0, most
        while beyond - enough > 1:
            middle = (enough + beyond) // 2
            if self.epsilon(middle) <= budget:
                enough = middle
            else:
                beyond = middle
        return enough


def calibrated(sampling: Sampling, rounds: int, budget: float, delta: float) -> float:
    """The least noise with which so many rounds stay within a budget, but for a thousandth."""
    library = _library()
    least, most = (Accountant(sampling, noise, delta).epsilon(rounds) for noise in (MOST, _WORTHWHILE))
    if not least <= budget < most:
        raise ConfigError(
            f"found {budget:g}; allowed with noise: null, which takes {_WORTHWHILE:g} to {MOST:g}: from "
            f"{least:.3g} to {most:.3g}",
            "privacy.budget",
        )

    def found(event: Callable[[float], DpEvent]) -> float:
        noise: float = library.calibrate_dp_mechanism(
            sampling.accountant,
            lambda noise: library.SelfComposedDpEvent(event(noise), rounds),
            budget,
            delta,
            library.LowerEndpointAndGuess(_WORTHWHILE, 1.0),
            tol=1e-3,
        )
        return noise

    return min(found(bound) for bound in sampling.bounds)


@lru_cache
def _curve(sampling: Sampling, noise: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(orders, Rényi divergence of one round at each): rounds add up."""
    accountants = [sampling.accountant().compose(bound(noise)) for bound in sampling.bounds]
    return accountants[0].orders, np.minimum.reduce([accountant.rdp for accountant in accountants])


def _library() -> Any:
    try:
        import dp_accounting  # takes a second, and private runs alone need it
        import dp_accounting.rdp
    except ImportError as error:
        raise missing("dp-accounting", "dp", error).under("privacy") from None
    logging.getLogger("absl").addFilter(_of_others)  # once, however often
    return dp_accounting


def _of_others(record: logging.LogRecord) -> bool:
    """Keeps the library's remarks on rounding off the terminal: hundreds, while noise is looked for."""
    return "dp_accounting" not in Path(record.pathname).parts
