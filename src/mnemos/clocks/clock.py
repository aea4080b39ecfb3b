"""The common ground of clocks, and rounds without any."""

from __future__ import annotations

from pydantic import Field

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
    """The same rounds, timed: each lasts as long as the slowest client that is heard of in it.

    With a deadline, whoever isn't back by then is left out. With over-selection, more clients are asked than
    a round takes, and it is over when enough are back.
    """

    deadline: float | None = Field(
        None, gt=0, description="how long the server waits for a round's clients; null: for all"
    )
    partial: bool = Field(
        True,
        description="whether clients send what they have done by the deadline, with methods that allow it",
    )
    over_selection: float = Field(
        0.0, ge=0, le=10, description="share of clients asked beyond those that a round takes"
    )
