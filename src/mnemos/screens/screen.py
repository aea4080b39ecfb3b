"""The interface of screens, and where they are found by name."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from mnemos.methods.exchange import Cohort, State
from mnemos.registry import Part, Registry

MEMORY = "screens."
"""What screens remember has names that start like this; it is kept with the server's state."""


class Screen(Part):
    """Looks at a round's updates together, before any of them touches the aggregate."""

    fewest: ClassVar[int] = 1
    """Updates that it takes to compare them."""
    remembers: ClassVar[bool] = False
    """Whether those of earlier rounds count among these, where a round has fewer."""
    in_step: ClassVar[bool] = True
    """Whether a round's clients must have been sent the same model, which asynchronous ones aren't."""

    @abstractmethod
    def judge(self, cohort: Cohort, last: Tensor, memory: State) -> dict[int, str]:
        """The clients to put aside, and why.

        `last` is the global model's last change, 0 at first, and `memory` what was remembered so far.
        """

    def remember(self, accepted: Cohort, memory: State) -> State:
        """What to remember from now on, if the round counts: of the updates that no screen has put aside."""
        return {}


screens: Registry[Screen] = Registry("screen", Screen, "mnemos.screens")
