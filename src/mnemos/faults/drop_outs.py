"""Clients that drop out of a round."""

from __future__ import annotations

from pydantic import Field

from mnemos.common import rng
from mnemos.faults.fault import Fault, faults


@faults.register("drop-outs")
class DropOuts(Fault):
    """Each client of a round vanishes with some probability: the server gets no update and doesn't wait."""

    rate: float = Field(gt=0, le=1, description="probability that a selected client vanishes")

    def vanishes(self, client: int, round: int, seed: int, attempt: int) -> bool:
        """Whether it vanishes, by an independent draw for each client, round and attempt."""
        again = (attempt,) if attempt else ()
        return bool(rng.numpy_generator(seed, "drop-outs", round, client, *again).random() < self.rate)
