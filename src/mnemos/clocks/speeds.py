"""How long clients take in simulated time, which is deterministic and independent of real clocks."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from mnemos.common import rng
from mnemos.common.registry import Options


class Stragglers(Options):
    """Some clients are slower than the others by a factor, for the whole run."""

    share: float = Field(0.1, gt=0, le=1, description="share of the clients, at least one")
    factor: float = Field(10.0, ge=1, le=1e9, description="by which a step takes them longer")


class Speeds(Options):
    """A client's round takes (its local steps) × (its time per step) × (a jitter).

    The unit of time is the step of an ordinary client. The time per step of client k is e^(σ z), with
    z ~ N(0, 1) drawn once for each client, times the stragglers' factor if it is one; or that of `times`.
    """

    spread: float = Field(
        0.0, ge=0, le=10, description="σ, the spread of the clients' times per step; 0: all alike"
    )
    stragglers: Stragglers | None = Field(None, description="clients that are slower by a factor")
    times: dict[Annotated[int, Field(ge=0)], Annotated[float, Field(gt=0, le=1e9)]] = Field(
        {}, description="the time per step of some clients, by number, instead of a drawn one"
    )
    jitter: float = Field(
        0.0,
        ge=0,
        le=10,
        description="σ of the logarithm of a factor drawn anew for each of a client's rounds",
    )

    def step(self, client: int, population: int, seed: int) -> float:
        """A client's time per step."""
        if client in self.times:
            return self.times[client]
        time = _factor(self.spread, seed, "speed", client)
        if self.stragglers and client in _slow(self.stragglers.share, population, seed):
            time *= self.stragglers.factor
        return time

    def duration(self, client: int, steps: int, round: int, population: int, seed: int) -> float:
        """How long a client takes for the local steps of a round."""
        jitter = _factor(self.jitter, seed, "jitter", round, client)
        return steps * self.step(client, population, seed) * jitter


def _factor(sigma: float, seed: int, purpose: str, *keys: int) -> float:
    """A log-normal draw of median 1."""
    if not sigma:
        return 1.0
    return math.exp(sigma * rng.numpy_generator(seed, purpose, *keys).standard_normal())


@lru_cache
def _slow(share: float, population: int, seed: int) -> frozenset[int]:
    """The clients that are stragglers, drawn once for the run."""
    count = max(1, round(share * population))
    drawn = rng.numpy_generator(seed, "stragglers").choice(population, count, replace=False)
    return frozenset(drawn.tolist())
