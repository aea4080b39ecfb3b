"""Clients that vanish."""

from __future__ import annotations

from pydantic import Field

from mnemos import rng
from mnemos.faults.fault import Fault, faults


@faults.register("drop-outs")
class DropOuts(Fault):
    """Each client of a round vanishes with some probability: nothing of it arrives, and nobody waits."""

    rate: float = Field(gt=0, le=1, description="probability that a selected client vanishes")

    def vanishes(self, client: int, round: int, seed: int, attempt: int) -> bool:
        """By a draw of its own."""
        again = (attempt,) if attempt else ()
        return bool(rng.numpy_generator(seed, "drop-outs", round, client, *again).random() < self.rate)
