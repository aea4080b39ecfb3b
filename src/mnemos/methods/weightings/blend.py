"""Blends of weightings: `weighting: {effective-rank: 0.5, samples: 0.5}`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, model_validator
from torch import Tensor

from mnemos.common.registry import Options
from mnemos.methods.exchange import Cohort, Weight
from mnemos.methods.part import Weighting, weightings


class Blended(Options):
    """One of the weightings of a blend."""

    weighting: Annotated[Weighting, weightings]
    """The weighting."""
    share: float = Field(gt=0, description="its weight beside the others")


@weightings.register("blend")
class Blend(Weighting):
    """The mean of other weightings, in given shares.

    α_k = Σ_j c_j α_k^(j): the mean of other weightings' α, with c_j that sum to one.
    """

    of: tuple[Blended, ...] = Field(min_length=1, description="the weightings and their shares")

    @model_validator(mode="after")
    def _each_once(self) -> Blend:
        names = [type(part.weighting).name for part in self.of]
        if len(set(names)) < len(names) or self.name in names:
            raise ValueError(f"found {', '.join(names)}; a blend has each weighting once, and no other blend")
        return self

    @property
    def blended(self) -> tuple[Weighting, ...]:
        """The weightings of the blend."""
        return tuple(share.weighting for share in self.of)

    @property
    def falls_short(self) -> bool:
        """Whether one of the weightings does."""
        return any(part.weighting.falls_short for part in self.of)

    @property
    def by_upload(self) -> bool:
        """Whether one of the weightings is."""
        return any(part.weighting.by_upload for part in self.of)

    def weigh_cohort(self, cohort: Cohort) -> Iterator[Weight]:
        """The mean of the weightings' weights."""
        total = sum(part.share for part in self.of)
        shares = [part.share / total for part in self.of]
        for weights in zip(*(part.weighting.weigh_cohort(cohort) for part in self.of), strict=True):
            yield Weight(*(_mean(shares, values) for values in zip(*weights, strict=True)))


def _mean(shares: list[float], values: tuple[Tensor | float, ...]) -> Tensor | float:
    return sum(share * value for share, value in zip(shares, values, strict=True))
