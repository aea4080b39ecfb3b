"""ε of a run, by Rényi differential privacy, computed by the library dp-accounting."""

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

from mnemos.common.extras import missing
from mnemos.errors import ConfigError

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from dp_accounting.rdp import RdpAccountant


LEAST, MOST = 1e-9, 1e6
"""Range of noise, in units of the longest update, in which the library's sums neither overflow nor vanish."""
_WORTHWHILE = 0.01
"""The least noise that is chosen for a budget: less gives no privacy."""
_TOLERANCE = 1e-3
"""How much larger than necessary, relative to it, the noise that is chosen for a budget may be."""


@dataclass(frozen=True)
class Sampling:
    """How a round's clients are drawn from the population, whose size is public."""

    population: int
    cohort: int
    """The number of clients in a round; with Poisson sampling, on average."""
    poisson: bool
    """Whether each client is drawn independently; otherwise a fixed number, without replacement."""

    @property
    def everyone(self) -> bool:
        """Whether all clients are in every round."""
        return self.cohort == self.population

    @property
    def fixed(self) -> bool:
        """Whether a fixed number of clients is drawn at random."""
        return not (self.everyone or self.poisson)

    @property
    def words(self) -> str:
        """The sampling in a few words."""
        if self.everyone:
            return f"all {self.population} clients in every round"
        if self.poisson:
            return f"each of {self.population} clients with probability {self.cohort / self.population:.4g}"
        return f"{self.cohort} of {self.population} clients, without replacement"

    @property
    def relation(self) -> str:
        """The neighbouring federations that the guarantee makes hard to tell apart, in a few words."""
        return (
            "a client has its own data or any other" if self.fixed else "a client takes part or sends nothing"
        )

    @property
    def bounds(self) -> tuple[Callable[[float], DpEvent], ...]:
        """Functions from noise, in units of the longest update C, to a round's event; each is an upper bound.

        With a fixed number of clients, drawn without replacement, neighbouring federations differ by one
        client that is replaced by another. That can reverse its update, and change the sum by 2 C.

        The last bound ignores the sampling, which can't increase the divergence: Rényi divergence is
        quasi-convex. It is the lowest one if most clients are drawn without replacement, and it holds where
        the sums of the other bounds aren't finite.
        """
        library = _library()

        def certain(noise: float) -> DpEvent:
            return library.GaussianDpEvent(noise / 2 if self.fixed else noise)

        def drawn(noise: float) -> DpEvent:
            if self.poisson:
                return library.PoissonSampledDpEvent(self.cohort / self.population, certain(noise))
            return library.SampledWithoutReplacementDpEvent(self.population, self.cohort, certain(noise))

        return (certain,) if self.everyone else (drawn, certain)

    def accountant(self) -> RdpAccountant:
        """The library's accountant before the first round, with its default orders of divergence."""
        relations = _library().NeighboringRelation
        relation = relations.REPLACE_ONE if self.fixed else relations.REPLACE_SPECIAL
        return _library().rdp.RdpAccountant(None, relation)


@dataclass(frozen=True)
class Accountant:
    """ε of a number of rounds with the same sampling and noise."""

    sampling: Sampling
    noise: float
    delta: float

    def __post_init__(self) -> None:
        _library()  # raises an error now if the library is missing

    def epsilon(self, rounds: int, again: Sequence[int] = ()) -> float:
        """ε after `rounds` rounds; `again` has the number of attempts of each round that was repeated.

        k sums of one cohort's updates, each with noise z, reveal as much as one with noise z / √k. If cohorts
        are drawn at random, that is more than k rounds with a new cohort each.
        """
        orders, curve = _curve(self.sampling, self.noise)
        total = (rounds - len(again)) * curve
        for times, count in Counter(again).items():
            total = total + count * _curve(self.sampling, self.noise / math.sqrt(times))[1]
        epsilon, _ = _library().rdp.compute_epsilon(orders, total, self.delta)
        return float(epsilon)

    def rounds(self, budget: float, most: int) -> int:
        """The number of rounds that a budget allows, at most `most`."""
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


@lru_cache
def calibrated(sampling: Sampling, rounds: int, budget: float, delta: float) -> float:
    """The least noise, up to a thousandth of it, with which the rounds stay within a budget."""
    from scipy.optimize import brentq  # slow to import, and only needed here

    def cost(noise: float) -> float:
        return Accountant(sampling, noise, delta).epsilon(rounds)

    least, most = cost(MOST), cost(_WORTHWHILE)
    if not least <= budget < most:
        raise ConfigError(
            f"found {budget:g}; allowed with noise: null, which takes {_WORTHWHILE:g} to {MOST:g}: from "
            f"{least:.3g} to {most:.3g}",
            "privacy.budget",
        )
    low = high = 1.0
    while cost(high) > budget:
        low, high = high, 2 * high
    while cost(low) <= budget:
        low, high = max(low / 2, _WORTHWHILE), low
    # A root finder with few steps, because each may take a second.
    found = brentq(
        lambda log: cost(math.exp(log)) - budget, math.log(low), math.log(high), xtol=_TOLERANCE / 2
    )
    noise = math.exp(found + _TOLERANCE / 2)
    while cost(noise) > budget:  # ε isn't quite monotonic: the best order changes with the noise
        noise *= 1 + _TOLERANCE
    return noise


@lru_cache
def _curve(sampling: Sampling, noise: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(orders, Rényi divergence of one round at each order); the divergences of rounds add up."""
    accountants = [sampling.accountant().compose(bound(noise)) for bound in sampling.bounds]
    # Rounding can make a tiny divergence negative, which the library would turn into an ε of 0.
    known = [np.where(accountant.rdp > 0, accountant.rdp, np.inf) for accountant in accountants]
    return accountants[0].orders, np.minimum.reduce(known)


def _library() -> Any:
    try:
        import dp_accounting  # takes a second, and only private runs need it
        import dp_accounting.rdp
    except ImportError as error:
        raise missing("dp-accounting", "dp", error).under("privacy") from None
    logging.getLogger("absl").addFilter(_not_of_library)  # adding it again has no effect
    return dp_accounting


def _not_of_library(record: logging.LogRecord) -> bool:
    """Hides the library's messages about rounding, of which a search for noise causes hundreds."""
    return "dp_accounting" not in Path(record.pathname).parts
