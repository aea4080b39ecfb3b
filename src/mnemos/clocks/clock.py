"""The common ground of clocks, and rounds without any."""

from __future__ import annotations

from mnemos.clocks.speeds import Speeds
from mnemos.registry import Part, Registry


class Clock(Part):
    """How a federation's rounds follow each other."""


clocks: Registry[Clock] = Registry("clock", Clock, "mnemos.clocks")


@clocks.register("rounds")
class Rounds(Clock):
    """Round after round, without a clock: nothing is said about time."""


class Timed(Clock):
    """A clock that knows how fast clients are."""

    speeds: Speeds = Speeds()


@clocks.register("synchronous")
class Synchronous(Timed):
    """The same rounds, timed: each lasts as long as the slowest client that is heard of in it."""
