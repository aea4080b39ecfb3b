"""Updates that are applied when they arrive: FedAsync, FedBuff and what lies between.

FedAsync: Xie, Koyejo, Gupta, 2019, arXiv 1903.03934. FedBuff: Nguyen et al., 2022, arXiv 2106.06639.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mnemos.clocks.clock import Timed, clocks
from mnemos.clocks.staleness import Polynomial, Staleness
from mnemos.clocks.staleness import staleness as known_staleness


@clocks.register("asynchronous")
class Asynchronous(Timed):
    """Clients train at their own pace; a round is one move of the server, made of `buffer` updates.

    With τₖ the number of times that the server has moved since it sent client k the model xₖ, from which the
    client made yₖ, the method's weighting and server step get

        change:  α s(τₖ) (yₖ − xₖ)
        model:   α s(τₖ) (yₖ − x), x being the model that the server has by then

    for an update. Buffers are mixed alike: b ← (1 − α s(τₖ)) b + α s(τₖ) bₖ.
    """

    concurrency: int | None = Field(
        None, ge=1, description="how many clients train at a time; null: as many as would be in a round"
    )
    buffer: int = Field(1, ge=1, description="how many updates the server waits for before it moves")
    applies: Literal["change", "model"] = Field(
        "change", description="how far the client went, or the way from the server's present model to its own"
    )
    mixing: float = Field(1.0, gt=0, le=1, description="α: how much an update counts that isn't late")
    staleness: Annotated[Staleness, known_staleness] = Polynomial()

    def weight(self, late: int) -> float:
        """α s(τ)."""
        return self.mixing * self.staleness.weight(late)


@clocks.register("fedasync")
class FedAsync(Asynchronous):
    """x ← (1 − α s(τ)) x + α s(τ) y: each model is mixed into the server's as it arrives."""

    applies: Literal["change", "model"] = "model"
    mixing: float = Field(0.6, gt=0, le=1, description="α: how much an update counts that isn't late")


@clocks.register("fedbuff")
class FedBuff(Asynchronous):
    """x ← x + η · mean of s(τₖ) Δₖ over a buffer of updates, η being the server step's rate."""

    buffer: int = Field(10, ge=1, description="how many updates the server waits for before it moves")
