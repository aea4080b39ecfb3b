"""What an experiment promises about its clients' data, and for how many rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mnemos.errors import ConfigError
from mnemos.methods.exchange import Server
from mnemos.privacy.accountant import Accountant, Sampling, calibrated
from mnemos.privacy.gaussian import Gaussian, Mechanism
from mnemos.privacy.privacy import Privacy


@dataclass(frozen=True)
class Guarantee:
    """What is promised about clients' data."""

    options: Gaussian
    mechanism: Mechanism
    accountant: Accountant
    asked: int
    """How many rounds the experiment asks for."""
    rounds: int
    """How many of them the budget allows."""

    def spend(self, round: int, server: Server) -> float:
        """ε once the server's model after a round has been sent to clients, if each round is done once."""
        return self.epsilon(round)

    def epsilon(self, rounds: int, again: Sequence[int] = ()) -> float:
        """ε after this many rounds; `again`: how often each round was done that was done more than once."""
        return self.accountant.epsilon(rounds, again)

    @property
    def budget(self) -> str:
        """The budget in words."""
        return f"the privacy budget, ε = {self.options.budget:g} at δ = {self.options.delta:g},"

    @property
    def limit(self) -> str:
        """What the budget has to say; nothing, if it allows all rounds."""
        if self.rounds == self.asked:
            return ""
        return f"{self.budget} allows {self.rounds} of {self.asked} rounds"

    @property
    def warnings(self) -> Iterator[str]:
        """What is to be known before the first round."""
        if self.limit:
            yield self.limit
        population = self.accountant.sampling.population
        if self.options.delta * population >= 1:
            yield (
                f"privacy.delta: {self.options.delta:g} isn't below 1 / {population}, the number of clients: "
                "a mechanism that gives away one client's data in full could have this δ"
            )

    def facts(self) -> dict[str, Any]:
        """All that ε speaks of, for a run's record."""
        options, sampling = self.options, self.accountant.sampling
        return {
            "delta": options.delta,
            "noise": self.mechanism.noise,
            "update_noise": self.mechanism.update_noise,
            "clip": options.clip,
            "adaptive": options.adaptive is not None,
            "at": options.at,
            "secret": options.secret,
            "sampling": sampling.words,
            "relation": sampling.relation,
            "budget": options.budget,
            "rounds": self.rounds,
            "asked": self.asked,
        }


def promise(options: Privacy, sampling: Sampling, rounds: int, seed: int) -> Guarantee | None:
    """What is promised about clients' data in an experiment of `rounds` rounds; None: nothing.

    `sampling`: how cohorts are drawn. Refuses a budget that allows no round.
    """
    if not isinstance(options, Gaussian):
        return None
    noise = options.noise
    if noise is None:
        assert options.budget is not None
        noise = calibrated(sampling, rounds, options.budget, options.delta)
    accountant = Accountant(sampling, noise, options.delta)
    allowed = rounds if options.budget is None else accountant.rounds(options.budget, rounds)
    if not allowed:
        raise ConfigError(
            f"found {options.budget:g}, which allows no round: the first costs ε = "
            f"{accountant.epsilon(1):.3g}; more noise, or fewer clients a round, cost less",
            "privacy.budget",
        )
    return Guarantee(options, Mechanism(options, noise, sampling.cohort, seed), accountant, rounds, allowed)
