"""RMSGD: SGD with a rate for each layer that follows the gain in its rank (Hosseini et al.)."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from mnemos.errors import ConfigError
from mnemos.optim.optimizer import Optimizer, Rate, State, descend, optimizers
from mnemos.ranks import layer_values, ranked
from mnemos.vector import Layout

_NOTHING = 1e-8
"""A knowledge gain up to this counts as 0: EVBMF has found only noise."""


@optimizers.register("rmsgd")
class Rmsgd(Optimizer):
    """SGD with momentum at a rate for each layer: η ← max(β η + ζ v, floor) after every local epoch.

    v is the increase of a convolution's knowledge gain (its stable rank after EVBMF) since the epoch before;
    in the first epoch it is the rate η₀ of local.lr. Every `step_size` epochs from the second on, ζ, which
    begins at 1, is multiplied by γ. A tensor without a rank has the rate of the last ranked tensor before it,
    or η₀ if there is none. A layer whose gain has been 0 so far keeps η₀.

    There are two published variants:

    - `paper`: η begins at 0, so the rate after the first epoch is η₀; it never falls below 1e-10; γ also
      acts on the first tensors, if they have no rank; 1×1 convolutions have none.
    - `main`: η begins at η₀, so the rate after the first epoch is (1 + β) η₀; it never falls below 0; γ also
      acts on η itself.

    Both follow the intention of the released code, which has two errors: it removes entries from its list of
    layers without a gain while it iterates over the list, and so skips some of them; and its factors ζ and γ
    change the rate that such a layer should keep. The options' defaults are the configuration published with
    the paper, for which local.lr is 0.03 and local.weight_decay 1e-4; the package's own defaults are β = 0.8,
    γ = 1, no `step_size` and no momentum.
    """

    elementwise = True

    variant: Literal["main", "paper"] = Field("paper", description="which of the published branches")
    beta: float = Field(0.98, ge=0, lt=1, description="how much of a rate is kept")
    gamma: float = Field(0.98, gt=0, le=1, description="factor on ζ every `step_size` epochs")
    step_size: int | None = Field(1, ge=1, description="epochs between two of these; null: never")
    momentum: float = Field(0.9, ge=0, lt=1)
    """The share of the last step that is kept."""
    skip_pointwise: bool | None = Field(
        None, description="whether 1×1 convolutions have no rank; null: as the variant has it"
    )

    def check(self, layout: Layout, *, kept: bool, decay: float) -> None:
        """Refuse a model without a layer that has a rank."""
        if not ranked(layout):
            raise ConfigError("rmsgd sets rates by the ranks of convolutions, and the model has none")
        if not self._layers(layout)[0]:
            raise ConfigError("the model has 1×1 convolutions only; allowed: false", "skip_pointwise")

    def init(self, parameters: Tensor, layout: Layout) -> State:
        """A state in which all rates are η₀; rates are in units of η₀, so that a schedule applies to them."""
        count = len(self._layers(layout)[0])
        state = {
            "rates": torch.ones_like(parameters),
            "eta": parameters.new_full((count,), 1.0 if self.variant == "main" else 0.0),
            "gain": parameters.new_zeros(count),
            "ready": parameters.new_zeros(count),
            "zeta": parameters.new_ones(1),
            "epochs": parameters.new_zeros(1),
        }
        return {**state, "velocity": torch.zeros_like(parameters)} if self.momentum else state

    def step(self, parameters: Tensor, gradient: Tensor, state: State, lr: Rate, decay: float) -> None:
        """One step in place, with coupled weight decay."""
        if decay:
            gradient.add_(parameters, alpha=decay)
        if self.momentum:
            gradient = state["velocity"].mul_(self.momentum).add_(gradient)
        descend(parameters, gradient * state["rates"], lr)

    def epoch(self, parameters: Tensor, state: State, layout: Layout, lr: float) -> None:
        """Compute the layers' new rates."""
        layers, before = self._layers(layout)
        gain = layer_values(parameters[None], layout, "knowledge-gain")[0, layers].to(parameters)
        eta, zeta, rates, done = state["eta"], state["zeta"], state["rates"], state["epochs"]
        first = layout.parameters[before.count(-1)].start
        # How many epochs are done is on the device, and the program doesn't wait to know it.
        later = done > 0
        if self.step_size:
            due = later & (done % self.step_size == 0)
            factor = torch.where(due, self.gamma, 1.0)
            zeta.mul_(factor)
            (eta if self.variant == "main" else rates[:first]).mul_(factor)
        increase = torch.where(later, (gain - state["gain"]) / lr, 1.0)
        floor = 1e-10 / lr if self.variant == "paper" else 0.0
        eta.mul_(self.beta).add_(zeta * increase).clamp_min_(floor)
        state["ready"].logical_or_(later & (gain > _NOTHING))
        eta.copy_(torch.where((state["ready"] > 0) | ~later, eta, 1.0))
        of_tensors = eta[_nearest(layout, self._skips, eta.device)]
        rates[first:] = layout.expand(of_tensors)[first:]
        state["gain"].copy_(gain)
        state["epochs"].add_(1)

    def _layers(self, layout: Layout) -> tuple[list[int], list[int]]:
        return _layers(layout, self._skips)

    @property
    def _skips(self) -> bool:
        return self.variant == "paper" if self.skip_pointwise is None else self.skip_pointwise


@lru_cache(maxsize=8)
def _layers(layout: Layout, skip_pointwise: bool) -> tuple[list[int], list[int]]:
    """The ranked layers that are used, and for each tensor the last of them up to it (−1: none)."""
    slots = ranked(layout)
    layers = [index for index, slot in enumerate(slots) if not (skip_pointwise and _pointwise(slot.shape))]
    starts = torch.tensor([slots[index].start for index in layers])
    tensors = torch.tensor([slot.start for slot in layout.parameters])
    return layers, (torch.searchsorted(starts, tensors, right=True) - 1).tolist()


@lru_cache(maxsize=8)
def _nearest(layout: Layout, skip_pointwise: bool, device: torch.device) -> Tensor:
    """For each tensor the last ranked layer up to it, or the first one if there is none, on a device."""
    return torch.tensor(_layers(layout, skip_pointwise)[1], device=device).clamp_min(0)


def _pointwise(shape: tuple[int, ...]) -> bool:
    return all(size == 1 for size in shape[2:])
