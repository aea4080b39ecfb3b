"""Label-owner averaging: a class's row of the classifier belongs to the clients that hold the class.

From HeteroFL (Diao, Ding, Tarokh, 2021, arXiv 2010.01264), whose masked cross-entropy goes with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import torch
from pydantic import Field

from mnemos.methods.exchange import Finished, Rates, State, TrainReply, Weight
from mnemos.methods.head import check_classifier, classifier
from mnemos.methods.method import methods
from mnemos.methods.part import Single, Weighting, weightings
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.objectives.masked_ce import MaskedCrossEntropy
from mnemos.objectives.objective import Objective, objectives
from mnemos.optim.local import Local
from mnemos.vector import Layout

_HELD = "label-owners.held"


@weightings.register("label-owners")
class LabelOwners(Single):
    """Averages a class's row of the classifier over the clients that hold the class.

    aₖ for all tensors but the classifier, whose row c counts aₖ if client k holds class c, else 0.

    A row that no client of the cohort holds has no update. The server learns which classes a client holds.
    """

    by: Literal["samples", "uniform"] = Field("samples", description="aₖ: the client's samples, or 1")

    def check(self, layout: Layout, local: Local, classes: int) -> None:
        """Raise a ConfigError unless there is a classifier with a row for each class."""
        check_classifier(layout, classes, "method.weighting")

    def sends(self, layout: Layout) -> State:
        """A number for each class."""
        return {_HELD: torch.zeros(classifier(layout)[0].shape[0])}

    def upload(self, done: Finished) -> tuple[State, State]:
        """Which classes the client holds."""
        return {_HELD: (done.client.counts > 0).float()}, {}

    def plausible(
        self, update: TrainReply, received: State, local: Local, rates: Callable[[], Rates]
    ) -> bool:
        """Whether the number of each class is 0 or 1."""
        held = update.change[_HELD]
        return bool(((held == 0) | (held == 1)).all())

    def weigh(self, update: TrainReply, layout: Layout) -> Weight:
        """A weight for each parameter; buffers are weighted by aₖ."""
        weight = float(update.samples) if self.by == "samples" else 1.0
        weights = torch.full_like(update.delta, weight)
        held = update.change[_HELD]
        for slot in classifier(layout):
            weights[slot.start : slot.stop].view(len(held), -1).mul_(held[:, None])
        return Weight(weights, weight)


@methods.register("label-owners")
class LabelOwnerAveraging(FedAvg):
    """FedAvg in which a class's row of the classifier is averaged over the clients that hold the class."""

    loss: Annotated[Objective, objectives] = MaskedCrossEntropy()
    weighting: Annotated[Weighting, weightings] = LabelOwners()
