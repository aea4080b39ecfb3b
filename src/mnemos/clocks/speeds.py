"""How long clients take, in simulated time: deterministic, and without a look at any real clock."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from mnemos import rng
from mnemos.registry import Options


class Stragglers(Options):
    """Some clients are slower than the others by a factor, for the whole run."""

    share: float = Field(0.1, gt=0, le=1, description="share of the clients, at least one")
    factor: float = Field(10.0, ge=1, le=1e9, description="by which a step takes them longer")


class Speeds(Options):
    """A client's round takes (its local steps) × (its time a step) × (a jitter).

    The unit of time is the step of an ordinary client. The time a step of client k is e^(σ z), z ~ N(0, 1)
    drawn once for each client, times the stragglers' factor if it is one; or what `times` says.
    """

    spread: float = Field(
        0.0, ge=0, le=10, description="σ, the spread of the clients' times a step; 0: all alike"
    )
    stragglers: Stragglers | None = Field(None, description="clients that are slower by a factor")
    times: dict[Annotated[int, Field(ge=0)], Annotated[float, Field(gt=0, le=1e9)]] = Field(
        {}, description="the time a step of some clients, by number, instead of a drawn one"
    )
    jitter: float = Field(
        0.0,
        ge=0,
        le=10,
        description="σ of the logarithm of a factor drawn anew for each of a client's rounds",
    )

    def step(self, client: int, population: int, seed: int) -> float:
        """A client's time a step."""
        if client in self.times:
            return self.times[client]
        time = _factor(self.spread, seed, "speed", client)
        if self.stragglers and client in _slow(self.stragglers.share, population, seed):
            time *= self.stragglers.factor
        return time

    def duration(self, client: int, steps: int, round: int, population: int, seed: int) -> float:
        """How long a client takes for the steps of one of its rounds."""
        jitter = _factor(self.jitter, seed, "jitter", round, client)
        return steps * self.step(client, population, seed) * jitter


def _factor(sigma: float, seed: int, purpose: str, *keys: int) -> float:
    """A log-normal draw of median 1."""
    if not sigma:
        return 1.0
    return math.exp(sigma * rng.numpy_generator(seed, purpose, *keys).standard_normal())


@lru_cache
def _slow(share: float, population: int, seed: int) -> frozenset[int]:
    """The stragglers."""
    count = max(1, round(share * population))
    drawn = rng.numpy_generator(seed, "stragglers").choice(population, count, replace=False)
    return frozenset(drawn.tolist())
