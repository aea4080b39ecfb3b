"""Screens that compare an update with those of the other clients in its round, or of earlier rounds."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from mnemos.methods.exchange import Cohort, State, TrainReply
from mnemos.screens.screen import MEMORY, Screen, screens
from mnemos.vector import square_sum

_KEPT = 10
"""How many of the last accepted updates are remembered."""


class AgainstMedian(Screen):
    """Rejects updates that have a value far above the median of the round.

    In a round of fewer than three updates, the median is taken over their values and those of the last ten
    accepted updates. If these are fewer than three together, no update is rejected.
    """

    fewest: ClassVar[int] = 3
    remembers: ClassVar[bool] = True
    in_step: ClassVar[bool] = False
    reason: ClassVar[str]
    """The reason that is given if the most important value is above its limit."""

    most: float = Field(ge=1, description="how many times the median is still accepted")

    @abstractmethod
    def values(self, update: TrainReply, cohort: Cohort) -> dict[str, float]:
        """The values that are compared, by the reason that is given if one of them is above its limit."""

    def factor(self, reason: str) -> float:
        """How many times the median of the values of this reason is accepted."""
        return self.most

    def judge(self, cohort: Cohort, last: Tensor, memory: State) -> dict[int, str]:
        """The clients with a value above its limit, with the first reason that holds."""
        values = {update.client: self.values(update, cohort) for update in cohort.updates}
        limits = {
            reason: self.factor(reason) * self._median(column, memory.get(self._name(reason)))
            for reason, column in _columns(values.values()).items()
        }
        above = {
            client: [reason for reason, value in own.items() if value > limits[reason]]
            for client, own in values.items()
        }
        return {client: reasons[0] for client, reasons in above.items() if reasons}

    def remember(self, accepted: Cohort, memory: State) -> State:
        """The values of the last ten accepted updates."""
        newest = [self.values(update, accepted) for update in accepted.updates[-_KEPT:]]
        return {
            name: torch.cat([memory[name], fresh])[-_KEPT:] if name in memory else fresh
            for reason, column in _columns(newest).items()
            for name, fresh in [(self._name(reason), torch.tensor(column, dtype=torch.float64))]
        }

    def _median(self, column: list[float], remembered: Tensor | None) -> float:
        """The median of a round's values, with remembered ones if they are few; infinite if still too few."""
        if len(column) < self.fewest and remembered is not None:
            column = [*column, *remembered.tolist()]
        return float(np.median(column)) if len(column) >= self.fewest else math.inf

    def _name(self, reason: str) -> str:
        return f"{MEMORY}{type(self).name}.{reason}"


@screens.register("norms")
class Norms(AgainstMedian):
    """Accepts ‖Δₖ‖ ≤ most · median ‖Δ‖ (`method.rule: norm-bounded` shortens longer updates instead).

    The norm of each tensor that is uploaded beside the model, and of the difference of buffers from the
    server's, is bounded likewise, with `beside` instead of `most`. A norm of 0 isn't compared, as a client
    may have nothing to report.
    """

    reason: ClassVar[str] = "norm"
    most: float = Field(5.0, ge=1, description="how many times the median of the round's norms is accepted")
    beside: float = Field(
        1000.0, ge=1, description="the same for buffers, and for what is uploaded beside the model"
    )

    def values(self, update: TrainReply, cohort: Cohort) -> dict[str, float]:
        """‖Δ‖, the norm of the buffers' difference from the server's, and of each tensor uploaded beside."""
        beside = {"buffers": _buffer_distance(update.buffers, cohort)} | {
            name: math.sqrt(square_sum(tensor))
            for name, tensor in update.change.items()
            if tensor.is_floating_point()
        }
        norms = {f"norm of {name}": norm for name, norm in beside.items() if norm}
        return {self.reason: math.sqrt(square_sum(update.delta)), **norms}

    def factor(self, reason: str) -> float:
        """`most` for updates, and `beside` for the rest, in which honest clients differ more."""
        return self.most if reason == self.reason else self.beside


@screens.register("samples")
class SampleCounts(AgainstMedian):
    """Accepts nₖ ≤ most · median n: a client that claims more samples would have more weight."""

    reason: ClassVar[str] = "sample count"
    most: float = Field(20.0, ge=1, description="how many times the median of the round's counts is accepted")

    def values(self, update: TrainReply, cohort: Cohort) -> dict[str, float]:
        """The number of samples that the client claims."""
        return {self.reason: float(update.samples)}


def _columns(rows: Iterable[dict[str, float]]) -> dict[str, list[float]]:
    """The values of each name, from mappings of names to values."""
    found: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            found.setdefault(name, []).append(value)
    return found


def _buffer_distance(buffers: Tensor, cohort: Cohort) -> float:
    """The norm of the statistics' difference from the server's, without counters, which only grow."""
    difference = buffers.double() - cohort.buffers
    statistics = (slot for slot in cohort.layout.buffers if slot.dtype.is_floating_point)
    return math.sqrt(sum(square_sum(difference[slot.start : slot.stop]) for slot in statistics))
