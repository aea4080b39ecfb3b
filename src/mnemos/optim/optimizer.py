"""Optimisers on the parameter vector."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from mnemos.registry import Part, Registry
from mnemos.vector import Layout

State = dict[str, Tensor]
Rate = float | Tensor
"""A learning rate; where clients are rows and their rates differ, one a row [K, 1]."""


class Optimizer(Part):
    """A local optimiser, written for one client's vectors; engines may run many clients at once.

    What it remembers is a dictionary of float32 tensors whose names and shapes depend on the layout alone,
    so that it can be kept from a client's round to its next.
    """

    elementwise: ClassVar[bool] = False
    """Whether each parameter's step depends on itself alone: then a cohort's matrix is just more of them."""
    vectorised: ClassVar[bool] = True
    """Whether `vmap` can run its steps; if not, the cohort runs one client at a time."""

    def check(self, layout: Layout, *, kept: bool, decay: float) -> None:
        """Refuse, with a `ConfigError`, what it can't work with; kept: its state is to outlive a round."""

    def init(self, parameters: Tensor, layout: Layout) -> State:
        """The state of an optimiser that has not made a step."""
        return {}

    @abstractmethod
    def step(self, parameters: Tensor, gradient: Tensor, state: State, lr: Rate, decay: float) -> None:
        """One step in place, with weight decay; the gradient may be overwritten."""

    @property
    def counts_epochs(self) -> bool:
        """Whether `epoch` does anything."""
        return type(self).epoch is not Optimizer.epoch

    def epoch(self, parameters: Tensor, state: State, layout: Layout, lr: float) -> None:
        """What is done in place at the end of one client's local epoch; lr is the rate without a schedule."""


def descend(parameters: Tensor, direction: Tensor, lr: Rate) -> None:
    """w ← w − η d, in place."""
    if isinstance(lr, Tensor):
        parameters.addcmul_(direction, lr, value=-1)
    else:
        parameters.add_(direction, alpha=-lr)


optimizers: Registry[Optimizer] = Registry("optimizer", Optimizer, "mnemos.optim")
