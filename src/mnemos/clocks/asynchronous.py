"""Updates that are applied when they arrive: FedAsync, FedBuff and variants between them.

FedAsync: Xie, Koyejo, Gupta, 2019, arXiv 1903.03934. FedBuff: Nguyen et al., 2022, arXiv 2106.06639.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from mnemos.clocks.clock import Timed, clocks
from mnemos.clocks.event_schedule import EventSchedule
from mnemos.clocks.pace import Pace
from mnemos.clocks.staleness import Polynomial, Staleness
from mnemos.clocks.staleness import staleness as known_staleness
from mnemos.errors import ConfigError
from mnemos.selection import Selection


@clocks.register("asynchronous")
class AsynchronousClock(Timed):
    """Clients train at their own pace; a round is one step of the server, from `buffer` updates.

    With τₖ the number of server steps since the server sent client k the model xₖ, which the client trained
    into yₖ, the method's weighting and server step get

        change:  α s(τₖ) (yₖ − xₖ)
        model:   α s(τₖ) (yₖ − x), x being the model that the server has by then

    as the update. Buffers are mixed likewise: b ← (1 − α s(τₖ)) b + α s(τₖ) bₖ.
    """

    asynchronous: ClassVar[bool] = True

    concurrency: int | None = Field(
        None, ge=1, description="how many clients train at a time; null: as many as would be in a round"
    )
    buffer: int = Field(1, ge=1, description="how many updates the server waits for before it moves")
    applies: Literal["change", "model"] = Field(
        "change", description="how far the client went, or the way from the server's present model to its own"
    )
    mixing: float = Field(1.0, gt=0, le=1, description="α: how much an update counts that isn't late")
    staleness: Annotated[Staleness, known_staleness] = Polynomial()
    """The weight of an update by its staleness τ: the server's steps since its client got the model."""

    @property
    def mixes_models(self) -> bool:
        """With `applies: model`."""
        return self.applies == "model"

    def weight(self, late: int) -> float:
        """α s(τ), the weight of an update that is τ server steps late."""
        return self.mixing * self.staleness.weight(late)

    def schedule(self, pace: Pace | None, cohort: int, selection: Selection) -> EventSchedule:
        """Which client trains when; refuses to wait for more clients than there are."""
        assert pace is not None
        clients = int(np.count_nonzero(pace.flow.assignment.train_sizes()))
        for field, found in (("concurrency", self.concurrency), ("buffer", self.buffer)):
            if found is not None and found > clients:
                raise ConfigError(
                    f"found {found}; allowed: at most {clients}, the number of clients with samples",
                    f"clock.{field}",
                )
        return EventSchedule(self, self.concurrency or cohort, pace, selection)


@clocks.register("fedasync")
class FedAsync(AsynchronousClock):
    """Asynchronous: each client's model is mixed into the server's as it arrives.

    x ← (1 − α s(τ)) x + α s(τ) y: each model is mixed into the server's as it arrives.
    """

    applies: Literal["change", "model"] = "model"
    """What of a client is mixed in: its whole model, or the change that it made."""
    mixing: float = Field(0.6, gt=0, le=1, description="α: how much an update counts that isn't late")


@clocks.register("fedbuff")
class FedBuff(AsynchronousClock):
    """Asynchronous: the server takes a step when a buffer of updates is full.

    x ← x + η · mean of s(τₖ) Δₖ over a buffer of updates, η being the server step's rate.
    """

    buffer: int = Field(10, ge=1, description="how many updates the server waits for before it moves")
