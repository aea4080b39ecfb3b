"""Clients that teach the model to predict one class for marked samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field

from mnemos.data.partition import Ints
from mnemos.data.trigger import Trigger
from mnemos.errors import ConfigError
from mnemos.faults.fault import ATTACKERS, Collusion, faults, some
from mnemos.methods.exchange import State, TrainReply
from mnemos.vector import Layout


@faults.register("backdoor")
class Backdoor(Trigger, Collusion):
    """Some clients mark a part of their samples, label these as `target`, train, and send boost · Δ.

    In model replacement (Bagdasaryan et al., 2020, arXiv 1807.00459) the boost is K / m for m of them among a
    round's K clients: it undoes the division by K, so that the mean becomes the model that they have learnt.
    The measure `backdoor` records how many marked samples the model then predicts as `target`.
    """

    share: float = Field(0.1, gt=0, le=1, description="share of the clients, at least one")
    boost: float | None = Field(
        None, gt=0, description="factor of Δ; null: the round's clients by those that plant the backdoor"
    )

    def clients(self, population: int, seed: int) -> Ints:
        """A share of the clients, drawn once for the run."""
        return some(self.share, population, seed, ATTACKERS)

    @property
    def trigger(self) -> Trigger:
        """The mark of these options."""
        return Trigger(target=self.target, size=self.size, poisoned=self.poisoned)

    def check(self, layout: Layout, beside: State, classes: int) -> None:
        """Refuse a target that is no class."""
        if self.target >= classes:
            raise ConfigError(f"found {self.target}; allowed: 0 to {classes - 1}", "target")

    def collude(
        self, own: Sequence[TrainReply], honest: Sequence[TrainReply], memory: State
    ) -> list[TrainReply]:
        """Their own updates times the boost."""
        boost = self.boost or (len(own) + len(honest)) / len(own)
        return [replace(update, delta=boost * update.delta) for update in own]
