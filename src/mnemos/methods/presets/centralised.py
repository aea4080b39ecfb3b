"""The non-federated baseline: one learner with all clients' samples."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from mnemos.data.stream import Flow
from mnemos.errors import ConfigError
from mnemos.methods.method import methods
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.optim.local import Local, round_steps


@methods.register("centralised")
class Centralised(FedAvg):
    """The same model and training without clients, to show what a federation gives up.

    A round is some steps of ordinary training on the union of the clients' samples. The optimiser's state is
    kept between rounds.
    """

    budget: Literal["cohort", "client"] = Field(
        "cohort",
        description="a round's work: as many steps as its clients together, or as many epochs as one client",
    )

    def training(self, local: Local) -> Local:
        """The experiment's, with an optimiser that keeps its state."""
        return super().training(local).model_copy(update={"optimizer_state": "kept"})

    def pooled_training(self, local: Local, flow: Flow, cohort: int) -> Local:
        """As many steps as the cohort's clients would make together, or as many epochs as one client."""
        if flow.assignment.noise is not None:
            raise ConfigError(
                "its noise belongs to clients, and the centralised method has none", "partition"
            )
        if self.budget == "cohort":
            sizes = flow.loads()
            each = round_steps(local.steps, local.epochs, float(local.batches(sizes[sizes > 0]).mean()))
            local = local.model_copy(update={"steps": max(1, math.floor(cohort * each + 0.5))})
        return local
