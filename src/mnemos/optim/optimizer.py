"""The interface of optimisers on the parameter vector."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from mnemos.common.registry import Part, Registry
from mnemos.vector import Layout

State = dict[str, Tensor]
Rate = float | Tensor
"""A learning rate; for clients as rows with different rates, one per row [K, 1]."""


class Optimizer(Part):
    """A local optimiser, written for one client's vectors; engines may run many clients at once.

    Its state is a dictionary of float32 tensors whose names and shapes depend only on the layout, so that it
    can be kept from one of a client's rounds to the next.
    """

    elementwise: ClassVar[bool] = False
    """Whether each parameter's step depends on that parameter only, so that it works on a cohort's matrix."""
    vectorised: ClassVar[bool] = True
    """Whether `vmap` can run its steps; if not, clients run one after the other."""

    def check(self, layout: Layout, *, kept: bool, decay: float) -> None:
        """Refuse, with a `ConfigError`, what it can't work with; `kept`: its state is kept between rounds."""

    def init(self, parameters: Tensor, layout: Layout) -> State:
        """The state before the first step."""
        return {}

    @abstractmethod
    def step(self, parameters: Tensor, gradient: Tensor, state: State, lr: Rate, decay: float) -> None:
        """One step in place, with weight decay; the gradient may be overwritten."""

    def settled(self, state: State) -> State:
        """The state after a round's last step, as it is kept for the next round."""
        return state

    @property
    def counts_epochs(self) -> bool:
        """Whether `epoch` does anything."""
        return type(self).epoch is not Optimizer.epoch

    def epoch(self, parameters: Tensor, state: State, layout: Layout, lr: float) -> None:
        """Change parameters or state in place after a local epoch; `lr` is the rate without the schedule."""


def descend(parameters: Tensor, direction: Tensor, lr: Rate) -> None:
    """w ← w − η d, in place."""
    if isinstance(lr, Tensor):
        parameters.addcmul_(direction, lr, value=-1)
    else:
        parameters.add_(direction, alpha=-lr)


optimizers: Registry[Optimizer] = Registry("optimizer", Optimizer, "mnemos.optim")
