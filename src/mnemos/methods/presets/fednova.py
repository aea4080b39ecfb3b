"""FedNova: normalised averaging of unequal local work (Wang et al., 2020, arXiv 2007.07481)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from mnemos.errors import ConfigError
from mnemos.methods.exchange import Aggregate, Finished, Fold, Rates, Server, State, TrainReply, Weight
from mnemos.methods.fold import WeightedMean
from mnemos.methods.method import methods
from mnemos.methods.part import ServerStep, server_steps
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.optim.local import Local
from mnemos.optim.optimizer import Optimizer
from mnemos.optim.sgd import Sgd
from mnemos.vector import Kind, Layout, Slot

_WORK = "fednova.a"
_ROUNDING = 1e-5
_ONE = Layout((Slot("", (1,), 0, Kind.OTHER),), ())


@lru_cache
def effective_steps(optimizer: Optimizer, factors: Rates) -> float:
    """‖aᵢ‖₁: how far the local optimiser goes along a constant unit gradient with a step size of 1.

    Plain SGD goes τ; with momentum ρ it is [τ − ρ (1 − ρ^τ) / (1 − ρ)] / (1 − ρ). A schedule's factors make
    some steps shorter.
    """
    here = torch.zeros(1, dtype=torch.float64)
    state = optimizer.init(here, _ONE)
    for steps, factor in factors:
        for _ in range(steps):
            optimizer.step(here, torch.ones_like(here), state, factor, 0.0)
    return -float(here)


class _Normalised(WeightedMean):
    """Σ pₖ aₖ · Σ pₖ Δₖ / aₖ, with pₖ the weights' shares."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._work: Tensor | float = 0.0

    def add(self, update: TrainReply, weight: Weight) -> None:
        """Add an update."""
        work = float(update.change[_WORK])
        self._work = self._work + weight.parameters * work
        self._add(update, update.delta / work, weight)

    def result(self) -> Aggregate:
        """The normalised mean, times the mean number of effective steps."""
        mean = super().result()
        work = self._mean(mean.delta.new_tensor(self._work) if isinstance(self._work, float) else self._work)
        return replace(mean, delta=work * mean.delta)


@server_steps.register("fednova")
class Normalised(ServerStep):
    """Divides each update by the client's local work before averaging, and scales the mean back.

    x ← x + (Σ pᵢ aᵢ) Σ pᵢ Δᵢ / aᵢ: clients count by their direction, not by how far they went.
    """

    partial: ClassVar[bool] = True
    takes_models: ClassVar[bool] = True

    def check(self, layout: Layout, local: Local, classes: int) -> None:
        """Raise a ConfigError unless the optimiser's steps are linear in the gradients."""
        if not isinstance(local.optimizer, Sgd):
            raise ConfigError(
                f"FedNova divides by the steps of a linear optimiser, found {type(local.optimizer).name}; "
                "allowed: sgd",
                "local.optimizer",
            )

    def warnings(self, local: Local) -> tuple[str, ...]:
        """A warning if the optimiser keeps its momentum, by which earlier rounds move the client, too."""
        if not (isinstance(local.optimizer, Sgd) and local.optimizer.momentum and local.keeps):
            return ()
        return (
            "FedNova takes a client's momentum to begin at zero, which local.optimizer_state=kept changes",
        )

    def sends(self, layout: Layout) -> State:
        """One number."""
        return {_WORK: torch.zeros(())}

    def upload(self, done: Finished) -> tuple[State, State]:
        """aᵢ."""
        factors = tuple((steps, rate / done.local.lr) for steps, rate in done.rates)
        return {_WORK: done.end.new_full((), effective_steps(done.local.optimizer, factors))}, {}

    def plausible(
        self, update: TrainReply, received: State, local: Local, rates: Callable[[], Rates]
    ) -> bool:
        """Whether aᵢ is between that of its steps at the round's smallest rate and at its largest."""
        factors = [rate / local.lr for _, rate in rates()]
        least, most = (
            effective_steps(local.optimizer, ((update.steps, factor),))
            for factor in (min(factors), max(factors))
        )
        work = float(update.change[_WORK])
        return work > 0 and least * (1 - _ROUNDING) <= work <= most * (1 + _ROUNDING)

    def fold(self, layout: Layout) -> Fold:
        """The normalised mean."""
        return _Normalised(layout)

    def step(self, server: Server, aggregate: Aggregate) -> tuple[Tensor, State]:
        """A step along the normalised mean."""
        return server.model + aggregate.delta, {}


@methods.register("fednova")
class FedNova(FedAvg):
    """FedAvg for clients with different numbers of local steps, without a bias towards those with more."""

    server: Annotated[ServerStep, server_steps] = Normalised()
