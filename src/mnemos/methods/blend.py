"""Blends of weightings: `weighting: {effective-rank: 0.5, samples: 0.5}`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, model_validator
from torch import Tensor

from mnemos.methods.exchange import Cohort, Weight
from mnemos.methods.part import MethodPart, Weighting, weightings
from mnemos.registry import Options


class Blended(Options):
    """One of the weightings of a blend."""

    weighting: Annotated[Weighting, weightings]
    share: float = Field(gt=0, description="how much it has to say beside the others")


@weightings.register("blend")
class Blend(Weighting):
    """α_k = Σ_j c_j α_k^(j): a mean of other weightings' shares, with c_j adding up to one."""

    of: tuple[Blended, ...] = Field(min_length=1, description="the weightings and their shares")

    @model_validator(mode="after")
    def _each_once(self) -> Blend:
        names = [type(one.weighting).name for one in self.of]
        if len(set(names)) < len(names) or self.name in names:
            raise ValueError(f"found {', '.join(names)}; a blend has each weighting once, and no other blend")
        return self

    @property
    def inner(self) -> tuple[MethodPart, ...]:
        """The weightings of the blend, which may keep state and send something along."""
        return tuple(one.weighting for one in self.of)

    @property
    def falls_short(self) -> bool:
        """If one of them does."""
        return any(one.weighting.falls_short for one in self.of)

    @property
    def by_upload(self) -> bool:
        """If one of them does."""
        return any(one.weighting.by_upload for one in self.of)

    def weigh_cohort(self, cohort: Cohort) -> Iterator[Weight]:
        """The mean of what the weightings say."""
        total = sum(one.share for one in self.of)
        shares = [one.share / total for one in self.of]
        for weights in zip(*(one.weighting.weigh_cohort(cohort) for one in self.of), strict=True):
            yield Weight(*(_mean(shares, values) for values in zip(*weights, strict=True)))


def _mean(shares: list[float], values: tuple[Tensor | float, ...]) -> Tensor | float:
    return sum(share * value for share, value in zip(shares, values, strict=True))
