"""Rounds that are tried again: what was lost on attempts that came to too few updates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mnemos.errors import DivergedError, MnemosError, PausedError
from mnemos.measures.measure import Record
from mnemos.rounds.arrivals import DROPPED, REJECTED, rejected
from mnemos.rounds.groups import Progress
from mnemos.screens.sound import NOT_FINITE

REPEATED = "repeated"
"""The record of an attempt that was given up: how many updates could have been used."""


def heard_of(done: Sequence[Progress]) -> tuple[Sequence[int], int]:
    """The clients that were heard of in an attempt, and how many were asked."""
    return [client for one in done for client in one.arrived], sum(one.asked for one in done)


def spoilt(number: int) -> DivergedError:
    """What to end with when nothing that comes can be used because training has gone astray."""
    return DivergedError(
        f"round {number}: what clients send is not finite any more; a smaller local.lr may help"
    )


class Attempts:
    """Attempts at a round, and what was lost on those that were given up."""

    def __init__(self, number: int, fewest: int) -> None:
        """`fewest`: how many updates the round takes."""
        self._number, self._fewest = number, fewest
        self.records: list[Record] = []
        self.sent = self.received = 0
        """Bytes."""
        self.lost: list[tuple[Sequence[int], int]] = []
        """The clients that were heard of in each that was given up, and how many were asked."""

    def suffice(self, done: Sequence[Progress]) -> bool:
        """Whether an attempt has come to enough; so has one for which nobody had anything to train on."""
        return sum(one.used for one in done) >= self._fewest or not any(one.asked for one in done)

    def give_up(self, done: Sequence[Progress]) -> None:
        """Nothing of it counts, but who was left out, and what was sent."""
        used = sum(one.used for one in done)
        self.records += [
            record for one in done for record in one.records if record.name.startswith((DROPPED, REJECTED))
        ]
        self.records.append(Record(self._number, REPEATED, float(used)))
        self.sent += sum(one.sent for one in done)
        self.received += sum(one.received for one in done)
        self.lost.append(heard_of(done))

    def error(self) -> MnemosError:
        """What to end with when there is no attempt left.

        Training has gone astray if nothing finite came from anybody, and more than half of all clients that
        were asked have sent something: a few bad ones can't end a run while the others aren't heard of.
        """
        left_out = [record for record in self.records if record.client is not None]
        reasons = Counter(record.name for record in left_out)
        if reasons[rejected(NOT_FINITE)] == sum(len(clients) for clients, _ in self.lost):
            # Nothing else has arrived, so there is a record of everybody who was asked.
            astray = {record.client for record in left_out if record.name == rejected(NOT_FINITE)}
            if 2 * len(astray) > len({record.client for record in left_out}):
                return spoilt(self._number)
        found = ", ".join(f"{count} {name}" for name, count in reasons.most_common())
        times = "" if len(self.lost) == 1 else f" in {len(self.lost)} attempts"
        return PausedError(
            f"round {self._number} came to too few updates{times} (min_clients is {self._fewest}): {found}"
        )
