"""The interface of screens, and where they are found by name."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from mnemos.common.registry import Part, Registry
from mnemos.methods.exchange import Cohort, State

MEMORY = "screens."
"""Prefix of the names under which the server's state keeps what screens remember."""


class Screen(Part):
    """Judges all updates of a round together, before any of them enters the aggregate."""

    fewest: ClassVar[int] = 1
    """How many updates it needs to compare them."""
    remembers: ClassVar[bool] = False
    """Whether it also compares with updates of earlier rounds, if a round has fewer."""
    in_step: ClassVar[bool] = True
    """Whether all clients of a round must start from the same model, which asynchronous ones don't."""

    @abstractmethod
    def judge(self, cohort: Cohort, last: Tensor, memory: State) -> dict[int, str]:
        """The clients whose updates are rejected, each with the reason.

        `last` is the global model's last change, 0 at first, and `memory` what was remembered so far.
        """

    def remember(self, accepted: Cohort, memory: State) -> State:
        """What to remember after a round that counts, from the updates that no screen has rejected."""
        return {}


screens: Registry[Screen] = Registry("screen", Screen, "mnemos.screens")
