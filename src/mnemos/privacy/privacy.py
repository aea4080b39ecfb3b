"""The interface of privacy mechanisms, which change a client's update before it is sent; and none."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from mnemos.common import rng
from mnemos.common.registry import Part, Registry
from mnemos.methods.exchange import State


class Privacy(Part):
    """How a client's data is protected."""

    private: ClassVar[bool] = False
    """Whether it promises anything: then a client may change the sum by its bounded update alone."""

    @property
    def keyed(self) -> bool:
        """Whether cohorts and noise are drawn with a secret instead of the experiment's seed."""
        return False

    @property
    def paced(self) -> bool:
        """Whether it depends on the number of rounds: such a run can't be made longer."""
        return False

    @property
    def sends(self) -> State:
        """Examples of what clients upload for it beside the model: names, shapes and types."""
        return {}

    def key(self, seed: int) -> rng.Seed:
        """The seed of cohorts and noise: by default the experiment's."""
        return seed

    def protect(
        self, delta: Tensor, received: State, seed: int, round: int, client: int
    ) -> tuple[Tensor, State]:
        """(the protected update, what is uploaded beside it), from an update and what the server sent."""
        return delta, {}


privacies: Registry[Privacy] = Registry("privacy", Privacy, "mnemos.privacy", "privacy")


@privacies.register("none")
class NoPrivacy(Privacy):
    """Sends updates unchanged, and gives no guarantee."""
