"""Optimisers on the parameter vector."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from mnemos.registry import Part, Registry

State = dict[str, Tensor]


class Optimizer(Part):
    """A local optimiser, written for one client's vectors; engines may run many clients at once."""

    elementwise: ClassVar[bool] = False
    """Whether each parameter's step depends on itself alone: then a cohort's matrix is just more of them."""

    def init(self, parameters: Tensor) -> State:
        """The optimiser's state at the start of a client's round."""
        return {}

    @abstractmethod
    def step(self, parameters: Tensor, gradient: Tensor, state: State, lr: float, decay: float) -> None:
        """One step in place, with coupled weight decay; the gradient may be overwritten."""


optimizers: Registry[Optimizer] = Registry("optimizer", Optimizer, "mnemos.optim")
