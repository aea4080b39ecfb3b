"""Another weighting, with some clients counting for more or for less: `mnemos replay --reweight 12=0.1`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import torch
from pydantic import Field, field_validator
from torch import Tensor

from mnemos.common.registry import Options
from mnemos.methods.exchange import Cohort, Weight
from mnemos.methods.part import Weighting, weightings


class ClientFactor(Options):
    """The factor of one client."""

    client: int = Field(ge=0, description="its number")
    factor: float = Field(ge=0, description="what its weight is multiplied with")


@weightings.register("scaled")
class Scaled(Weighting):
    """Another weighting, multiplied by a factor for each client.

    a'ₖ = fₖ aₖ · Σⱼ aⱼ / Σⱼ fⱼ aⱼ with another weighting's aₖ; fₖ is 1 for clients without a factor.

    The sum of the weights stays that of the other weighting. If all factors of a round's clients are 0, the
    weights stay as they are.
    """

    of: Annotated[Weighting, weightings] = Field(description="the weighting whose weights are multiplied")
    factors: tuple[ClientFactor, ...] = Field(min_length=1, description="clients and their factors")

    @field_validator("factors")
    @classmethod
    def _each_once(cls, value: tuple[ClientFactor, ...]) -> tuple[ClientFactor, ...]:
        clients = [entry.client for entry in value]
        if len(set(clients)) < len(clients):
            raise ValueError(f"found {', '.join(map(str, clients))}; each client can be named once")
        return value

    @property
    def blended(self) -> tuple[Weighting, ...]:
        """The other weighting."""
        return (*self.of.blended, self.of)

    @property
    def plain(self) -> bool:  # type: ignore[override]
        """Whether the other weighting is."""
        return self.of.plain

    @property
    def falls_short(self) -> bool:
        """Whether the other weighting does."""
        return self.of.falls_short

    @property
    def by_upload(self) -> bool:
        """Whether the other weighting is."""
        return self.of.by_upload

    def weigh_cohort(self, cohort: Cohort) -> Iterator[Weight]:
        """The other weighting's weights, multiplied, with the same sum."""
        known = {entry.client: entry.factor for entry in self.factors}
        factors = [known.get(update.client, 1.0) for update in cohort.updates]
        columns = zip(*self.of.weigh_cohort(cohort), strict=True)
        parameters, buffers = (_scaled(list(column), factors) for column in columns)
        return map(Weight, parameters, buffers)


def _scaled(weights: list[Tensor | float], factors: list[float]) -> list[Tensor | float]:
    """The weights, multiplied and divided by how much their sum has changed."""
    after = [factor * weight for factor, weight in zip(factors, weights, strict=True)]
    before, now = sum(weights), sum(after)
    if not isinstance(now, Tensor):
        return [value * before / now for value in after] if now > 0 else weights
    ratio = torch.where(now > 0, before / now, 0.0)
    return [torch.where(now > 0, value * ratio, old) for value, old in zip(after, weights, strict=True)]
