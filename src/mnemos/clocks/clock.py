"""The interface of clocks, rounds without any, and rounds in simulated time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from mnemos.clocks.event_schedule import EventSchedule
from mnemos.clocks.pace import Pace
from mnemos.clocks.speeds import Speeds
from mnemos.clocks.waiting import Waiting
from mnemos.common.registry import Part, Registry
from mnemos.data.stream import Flow
from mnemos.errors import ConfigError
from mnemos.optim.local import Local
from mnemos.selection import Selection

if TYPE_CHECKING:
    from mnemos.federation.groups import Group
    from mnemos.federation.protocols.protocol import RoundProtocol


class Clock(Part):
    """How a federation's rounds follow each other."""

    timed: ClassVar[bool] = False
    """Whether it simulates how long clients take."""
    asynchronous: ClassVar[bool] = False
    """Whether clients train at their own pace, and so start from different models."""

    @property
    def mixes_models(self) -> bool:
        """Whether the server mixes clients' models into its own, instead of adding their changes."""
        return False

    @property
    def asks_beyond(self) -> float:
        """How many more clients are asked than a round takes, as a share of these."""
        return 0.0

    @property
    def leaves_out(self) -> bool:
        """Whether a round may end before all clients that were asked are back, in simulated time."""
        return False

    @property
    def own_protocol(self) -> bool:
        """Whether it has a protocol of its own."""
        return type(self).protocol is not Clock.protocol

    def pace(self, flow: Flow, local: Local, seed: int) -> Pace | None:
        """How long clients take; None if the clock doesn't simulate time."""
        return None

    def waiting(self, pace: Pace | None, cohort: int, *, partial: bool) -> Waiting | None:
        """Which clients a synchronous server waits for; None if it waits for all and time isn't simulated.

        `cohort`: how many clients a round takes; `partial`: the method can use updates of clients that had to
        stop early.
        """
        return None

    def protocol(self, usual: RoundProtocol, groups: Sequence[Group]) -> RoundProtocol:
        """How a round proceeds. A clock that overrides this can replace `usual`, or wrap it.

        `usual`: the protocol that the experiment has otherwise; `groups`: the groups of clients, one for each
        model.
        """
        return usual

    def schedule(self, pace: Pace | None, cohort: int, selection: Selection) -> EventSchedule | None:
        """Which client trains when, under an asynchronous server; None if the server is synchronous.

        `cohort`: how many clients train at a time unless the clock says otherwise.
        """
        return None


clocks: Registry[Clock] = Registry("clock", Clock, "mnemos.clocks")


@clocks.register("rounds")
class Rounds(Clock):
    """Synchronous rounds without simulated time."""


class Timed(Clock):
    """A clock with simulated time, by the clients' speeds."""

    timed: ClassVar[bool] = True

    speeds: Speeds = Speeds()
    """How long clients take for their work, in simulated seconds."""

    def pace(self, flow: Flow, local: Local, seed: int) -> Pace:
        """How long clients take; refuses a speed for a client that doesn't exist."""
        clients = flow.assignment.clients
        unknown = [client for client in self.speeds.times if client >= clients]
        if unknown:
            raise ConfigError(
                f"there is no client {min(unknown)}; allowed: 0 to {clients - 1}", "clock.speeds.times"
            )
        return Pace(self.speeds, flow, local, seed)


@clocks.register("synchronous")
class SynchronousClock(Timed):
    """Synchronous rounds with simulated time: each lasts as long as its slowest client.

    With a deadline, clients that take longer are left out. With over-selection, more clients are asked than
    a round takes, and the round ends when enough have replied.
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

    @property
    def asks_beyond(self) -> float:
        """`over_selection`."""
        return self.over_selection

    @property
    def leaves_out(self) -> bool:
        """With a deadline, or with over-selection."""
        return self.deadline is not None or self.over_selection > 0

    def waiting(self, pace: Pace | None, cohort: int, *, partial: bool) -> Waiting | None:
        """Which clients the server waits for, and until when."""
        assert pace is not None
        takes = cohort if self.over_selection else None
        return Waiting(self.deadline, pace, takes, self.partial and partial)
