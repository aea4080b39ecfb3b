"""The same weight for every client."""

from __future__ import annotations

from collections.abc import Sequence

from mnemos.methods.exchange import TrainReply, Weight
from mnemos.methods.part import Single, weightings
from mnemos.methods.replies import TrainReplies
from mnemos.vector import Layout


@weightings.register("uniform")
class Uniform(Single):
    """All clients alike: aₖ = 1."""

    plain = True
    equal = True

    def weigh(self, update: TrainReply, layout: Layout) -> Weight:
        """One."""
        return Weight.of(1.0)

    def numbers(self, updates: TrainReplies) -> Sequence[float] | None:
        """Ones."""
        if type(self).weigh is not Uniform.weigh:
            return None
        return [1.0] * len(updates)
