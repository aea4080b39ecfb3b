"""Screens that compare a client's claims with those of the others of its round."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import numpy as np
from pydantic import Field
from torch import Tensor

from mnemos.methods.exchange import Cohort, Update
from mnemos.screens.screen import Screen, screens
from mnemos.vector import square_sum


class AgainstMedian(Screen):
    """Puts aside updates of which something is far above the median of the round."""

    fewest: ClassVar[int] = 3
    reason: ClassVar[str]

    most: float = Field(ge=1, description="how many times the median is still believed")

    @abstractmethod
    def value(self, update: Update) -> float:
        """What is compared."""

    def judge(self, cohort: Cohort, last: Tensor) -> dict[int, str]:
        """Those above `most` times the median."""
        if len(cohort.updates) < self.fewest:
            return {}
        values = {update.client: self.value(update) for update in cohort.updates}
        limit = self.most * float(np.median(list(values.values())))
        return {client: self.reason for client, value in values.items() if value > limit}


@screens.register("norms")
class Norms(AgainstMedian):
    """‖Δₖ‖ ≤ most · median ‖Δ‖ (to shorten such an update instead, take `method.rule: norm-bounded`)."""

    reason: ClassVar[str] = "norm"
    most: float = Field(5.0, ge=1, description="how many times the median of the round's norms is believed")

    def value(self, update: Update) -> float:
        """‖Δ‖."""
        return math.sqrt(square_sum(update.delta))


@screens.register("samples")
class SampleCounts(AgainstMedian):
    """nₖ ≤ most · median n: a client that claims more samples has more weight."""

    reason: ClassVar[str] = "sample count"
    most: float = Field(20.0, ge=1, description="how many times the median of the round's counts is believed")

    def value(self, update: Update) -> float:
        """n."""
        return float(update.samples)
