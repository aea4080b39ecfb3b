"""Schedules: how the local learning rate changes during an experiment."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Literal

from pydantic import Field

from mnemos.common.registry import Part, Registry


class Schedule(Part):
    """A factor on the local learning rate, as a function of round and local epoch only."""

    @property
    def counts_epochs(self) -> bool:
        """Whether the factor changes from one local epoch to the next."""
        return False

    def within(self, rounds: int) -> Schedule:
        """The schedule for an experiment with this number of rounds."""
        return self

    @abstractmethod
    def factor(self, round: int, epoch: int, epochs: int) -> float:
        """The factor in a round (from 1 on) and a local epoch (from 0 on), with `epochs` epochs per round."""


schedules: Registry[Schedule] = Registry("schedule", Schedule, "mnemos.optim")


@schedules.register("constant")
class ConstantSchedule(Schedule):
    """The same rate in all rounds."""

    def factor(self, round: int, epoch: int, epochs: int) -> float:
        """1."""
        return 1.0


class _Falling(Schedule):
    """A schedule whose time t counts rounds, t = round − 1, or epochs, t = (round − 1) · E + epoch."""

    over: Literal["rounds", "epochs"] = Field("rounds", description="what its time is counted in")

    @property
    def counts_epochs(self) -> bool:
        """Whether its time is counted in epochs."""
        return self.over == "epochs"

    def _time(self, round: int, epoch: int, epochs: int) -> int:
        return (round - 1) * epochs + epoch if self.counts_epochs else round - 1


@schedules.register("step")
class Steps(_Falling):
    """The rate falls by a factor at regular intervals.

    γ^⌊t / size⌋.
    """

    size: int = Field(25, ge=1, description="rounds or epochs between two falls")
    gamma: float = Field(0.5, gt=0, le=1, description="the factor at each fall")

    def factor(self, round: int, epoch: int, epochs: int) -> float:
        """γ to the power of the number of falls."""
        return float(self.gamma ** (self._time(round, epoch, epochs) // self.size))


@schedules.register("cosine")
class Cosine(_Falling):
    """The rate falls along half a period of the cosine.

    f + (1 − f) · ½ (1 + cos(π t / T)), f the floor: half a period of the cosine, then constant.

    T is the length, in the unit of t.
    """

    floor: float = Field(0.0, ge=0, le=1, description="the factor it comes down to")
    length: int | None = Field(None, ge=1, description="rounds until it is there; not given: all")

    def within(self, rounds: int) -> Schedule:
        """The schedule with all rounds as its length, if none is given."""
        return self.model_copy(update={"length": rounds}) if self.length is None else self

    def factor(self, round: int, epoch: int, epochs: int) -> float:
        """The value of the cosine at this time."""
        if self.length is None:
            raise ValueError("a cosine without a length has to be put within an experiment first")
        end = self.length * (epochs if self.counts_epochs else 1)
        passed = min(self._time(round, epoch, epochs) / end, 1.0)
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * passed)) / 2
