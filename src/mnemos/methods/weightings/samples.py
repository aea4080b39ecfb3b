"""Weights by the number of samples, as in FedAvg (McMahan et al., 2017, arXiv 1602.05629)."""

from __future__ import annotations

from collections.abc import Sequence

from mnemos.methods.exchange import TrainReply, Weight
from mnemos.methods.part import Single, weightings
from mnemos.methods.replies import TrainReplies
from mnemos.vector import Layout


@weightings.register("samples")
class Samples(Single):
    """By the number of training samples: aₖ = nₖ."""

    plain = True

    def weigh(self, update: TrainReply, layout: Layout) -> Weight:
        """The number of training samples."""
        return Weight.of(float(update.samples))

    def numbers(self, updates: TrainReplies) -> Sequence[float] | None:
        """The numbers of training samples."""
        if type(self).weigh is not Samples.weigh:  # a subclass weighs in its own way
            return None
        return [float(samples) for samples in updates.columns.samples]
