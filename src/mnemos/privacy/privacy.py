"""What a client does to its update before anybody sees it: the interface, and nothing at all."""

from __future__ import annotations

from torch import Tensor

from mnemos import rng
from mnemos.methods.exchange import State
from mnemos.registry import Part, Registry


class Privacy(Part):
    """What is promised about a client's data."""

    @property
    def paced(self) -> bool:
        """Whether it goes by how many rounds there are: such a run can't be made longer."""
        return False

    @property
    def sends(self) -> State:
        """What clients upload beside the model for its sake, by names, shapes and types."""
        return {}

    def key(self, seed: int) -> rng.Seed:
        """What cohorts and noise are drawn with: the experiment's seed, as a rule."""
        return seed

    def protect(
        self, delta: Tensor, received: State, seed: int, round: int, client: int
    ) -> tuple[Tensor, State]:
        """(what is left of a client's update, what it sends beside it); `received`: what the server asks."""
        return delta, {}


privacies: Registry[Privacy] = Registry("privacy", Privacy, "mnemos.privacy")


@privacies.register("none")
class NoPrivacy(Privacy):
    """Updates as they are, and no promise."""
