"""How much an update counts that is late."""

from __future__ import annotations

from abc import abstractmethod

from pydantic import Field

from mnemos.registry import Part, Registry


class Staleness(Part):
    """s(τ), τ being the number of times that the server has moved since it sent the client its model."""

    @abstractmethod
    def weight(self, late: int) -> float:
        """s(τ); s(0) is 1."""


staleness: Registry[Staleness] = Registry("staleness weight", Staleness, "mnemos.clocks.staleness")


@staleness.register("constant")
class Constant(Staleness):
    """s(τ) = 1."""

    def weight(self, late: int) -> float:
        """One."""
        return 1.0


@staleness.register("polynomial")
class Polynomial(Staleness):
    """s(τ) = (1 + τ)^−a."""

    a: float = Field(0.5, ge=0, description="how fast an update loses its weight")

    def weight(self, late: int) -> float:
        """(1 + τ)^−a."""
        return float((1 + late) ** -self.a)


@staleness.register("hinge")
class Hinge(Staleness):
    """s(τ) = 1 up to τ = b, then 1 / (1 + a (τ − b))."""

    a: float = Field(10.0, ge=0, description="how fast an update loses its weight after that")
    b: int = Field(4, ge=0, description="how late an update may be at no loss")

    def weight(self, late: int) -> float:
        """1, or 1 / (1 + a (τ − b))."""
        return 1 / (1 + self.a * max(0, late - self.b))
