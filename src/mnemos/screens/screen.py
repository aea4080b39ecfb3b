"""The interface of screens, and where they are found by name."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from mnemos.methods.exchange import Cohort
from mnemos.registry import Part, Registry


class Screen(Part):
    """Looks at a round's updates together, before any of them touches the aggregate."""

    fewest: ClassVar[int] = 1
    """Updates that it takes to compare them."""

    @abstractmethod
    def judge(self, cohort: Cohort, last: Tensor) -> dict[int, str]:
        """The clients to put aside, and why; `last` is the global model's last change, 0 at first."""


screens: Registry[Screen] = Registry("screen", Screen, "mnemos.screens")
