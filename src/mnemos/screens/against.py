"""Screens that compare a client's claims with those of the others of its round, or of the rounds before."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from mnemos.methods.exchange import Cohort, State, Update
from mnemos.screens.screen import MEMORY, Screen, screens
from mnemos.vector import square_sum

_KEPT = 10
"""How many of the last updates that counted are remembered."""


class AgainstMedian(Screen):
    """Puts aside updates of which something is far above the median of the round.

    In a round of fewer than three, it is the median of theirs and of those of the last ten updates that
    counted. As long as these are fewer than three, too, nobody is put aside.
    """

    fewest: ClassVar[int] = 3
    remembers: ClassVar[bool] = True
    in_step: ClassVar[bool] = False
    reason: ClassVar[str]
    """What is said of an update that is above the limit in what matters most."""

    most: float = Field(ge=1, description="how many times the median is still believed")

    @abstractmethod
    def values(self, update: Update, cohort: Cohort) -> dict[str, float]:
        """What is compared, by what is said of an update that is above the limit in it."""

    def believed(self, reason: str) -> float:
        """How many times the median of these values is still believed."""
        return self.most

    def judge(self, cohort: Cohort, last: Tensor, memory: State) -> dict[int, str]:
        """Those above so many times the median, with the first reason that holds."""
        values = {update.client: self.values(update, cohort) for update in cohort.updates}
        limits = {
            reason: self.believed(reason) * self._median(column, memory.get(self._name(reason)))
            for reason, column in _columns(values.values()).items()
        }
        above = {
            client: [reason for reason, value in own.items() if value > limits[reason]]
            for client, own in values.items()
        }
        return {client: reasons[0] for client, reasons in above.items() if reasons}

    def remember(self, accepted: Cohort, memory: State) -> State:
        """The values of the last ten."""
        newest = [self.values(update, accepted) for update in accepted.updates[-_KEPT:]]
        return {
            name: torch.cat([memory[name], fresh])[-_KEPT:] if name in memory else fresh
            for reason, column in _columns(newest).items()
            for name, fresh in [(self._name(reason), torch.tensor(column, dtype=torch.float64))]
        }

    def _median(self, column: list[float], remembered: Tensor | None) -> float:
        """Infinite, if there are too few to have one."""
        if len(column) < self.fewest and remembered is not None:
            column = [*column, *remembered.tolist()]
        return float(np.median(column)) if len(column) >= self.fewest else math.inf

    def _name(self, reason: str) -> str:
        return f"{MEMORY}{type(self).name}.{reason}"


@screens.register("norms")
class Norms(AgainstMedian):
    """‖Δₖ‖ ≤ most · median ‖Δ‖ (to shorten such an update instead, take `method.rule: norm-bounded`).

    So are the norms of all that comes with it, with `beside` in the place of `most`: of what is uploaded
    beside the model, tensor by tensor, and of the distance of buffers from the server's. Where that is 0 it
    isn't compared, as a client may have nothing to say.
    """

    reason: ClassVar[str] = "norm"
    most: float = Field(5.0, ge=1, description="how many times the median of the round's norms is believed")
    beside: float = Field(
        1000.0, ge=1, description="the same for buffers, and for what is uploaded beside the model"
    )

    def values(self, update: Update, cohort: Cohort) -> dict[str, float]:
        """‖Δ‖, ‖b − server's‖, and ‖·‖ of each tensor that was uploaded beside them."""
        beside = {"buffers": _apart(update.buffers, cohort)} | {
            name: math.sqrt(square_sum(tensor))
            for name, tensor in update.change.items()
            if tensor.is_floating_point()
        }
        norms = {f"norm of {name}": norm for name, norm in beside.items() if norm}
        return {self.reason: math.sqrt(square_sum(update.delta)), **norms}

    def believed(self, reason: str) -> float:
        """Honest clients differ more in what is beside the model: in squares of gradients most of all."""
        return self.most if reason == self.reason else self.beside


@screens.register("samples")
class SampleCounts(AgainstMedian):
    """nₖ ≤ most · median n: a client that claims more samples has more weight."""

    reason: ClassVar[str] = "sample count"
    most: float = Field(20.0, ge=1, description="how many times the median of the round's counts is believed")

    def values(self, update: Update, cohort: Cohort) -> dict[str, float]:
        """n."""
        return {self.reason: float(update.samples)}


def _columns(rows: Iterable[dict[str, float]]) -> dict[str, list[float]]:
    """The values of each name."""
    found: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            found.setdefault(name, []).append(value)
    return found


def _apart(buffers: Tensor, cohort: Cohort) -> float:
    """How far statistics are from the server's; counters of batches, which only grow, are none."""
    way = buffers.double() - cohort.buffers
    statistics = (slot for slot in cohort.layout.buffers if slot.dtype.is_floating_point)
    return math.sqrt(sum(square_sum(way[slot.start : slot.stop]) for slot in statistics))
