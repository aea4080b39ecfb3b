"""Weights of late updates."""

from __future__ import annotations

from abc import abstractmethod

from pydantic import Field

from mnemos.common.registry import Part, Registry


class Staleness(Part):
    """s(τ): the weight of an update that is τ server steps late, counted from when its model was sent."""

    @abstractmethod
    def weight(self, late: int) -> float:
        """s(τ) for τ = `late`; s(0) is 1."""


staleness: Registry[Staleness] = Registry(
    "staleness weight", Staleness, "mnemos.clocks.staleness", "staleness"
)


@staleness.register("constant")
class ConstantStaleness(Staleness):
    """Late updates count like others.

    s(τ) = 1.
    """

    def weight(self, late: int) -> float:
        """1."""
        return 1.0


@staleness.register("polynomial")
class Polynomial(Staleness):
    """Updates count less the later they are.

    s(τ) = (1 + τ)^−a.
    """

    a: float = Field(0.5, ge=0, description="how fast an update loses its weight")

    def weight(self, late: int) -> float:
        """(1 + τ)^−a."""
        return float((1 + late) ** -self.a)


@staleness.register("hinge")
class Hinge(Staleness):
    """Updates count less and less once they are later than a bound.

    s(τ) = 1 up to τ = b, then 1 / (1 + a (τ − b)).
    """

    a: float = Field(10.0, ge=0, description="how fast an update loses its weight after that")
    b: int = Field(4, ge=0, description="how late an update may be at no loss")

    def weight(self, late: int) -> float:
        """1, or 1 / (1 + a (τ − b))."""
        return 1 / (1 + self.a * max(0, late - self.b))
