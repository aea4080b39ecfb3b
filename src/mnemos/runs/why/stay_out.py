"""What would have been if a client had stayed out of several rounds, and not of one alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction

from mnemos.errors import MnemosError
from mnemos.runs.replay import Replay
from mnemos.runs.why.ledger import Account
from mnemos.runs.why.samples import Samples


@dataclass(frozen=True)
class StayedOut:
    """The rounds that were asked about, played again without any of a client's updates."""

    client: int
    right: Mapping[int, int]
    """By measured round: how many of the subject's samples the model answers correctly after it."""
    accounts: Mapping[int, Account]
    """What these rounds were like with the client."""
    ended: str = ""
    """Why the rounds could not all be played without it; empty as a rule."""

    @property
    def last(self) -> int:
        """The last measured round."""
        return max(self.right)

    @property
    def after(self) -> Fraction:
        """The accuracy after the last measured round, without the client."""
        return Fraction(self.right[self.last], self.accounts[self.last].samples)

    @property
    def cost(self) -> Fraction:
        """The accuracy that its updates have cost in the end: without the client − with it."""
        account = self.accounts[self.last]
        return self.after - Fraction(account.after, account.samples)

    @property
    def mean_cost(self) -> Fraction:
        """The same as the mean over the measured rounds."""
        differences = [
            Fraction(right - self.accounts[round].after, self.accounts[round].samples)
            for round, right in self.right.items()
        ]
        return sum(differences, Fraction()) / len(differences)


def stayed_out(
    replay: Replay, client: int, first: int, accounts: Mapping[int, Account], samples: Samples
) -> StayedOut | None:
    """Play the rounds from `first` to the last of `accounts` without a client's updates.

    They don't arrive, as those of a client that is away: the rounds have the bits of a branch that begins
    before `first` without this client. None if no measured round can be played without it.
    """
    federation, right, ended = replay.federation, {}, ""
    replay.to(first - 1)
    begun = replay.mark()
    try:
        for round in range(first, max(accounts) + 1):
            replay.prepare(round)
            federation.advance(replay.runner, frozenset([client]))
            if round in accounts:
                right[round] = samples.score(federation.servers).right
    except MnemosError as error:  # such as a run that pauses, as too few clients are left
        ended = str(error)
    finally:
        replay.back(begun)
    return StayedOut(client, right, accounts, ended) if right else None


def ranked(found: Collection[StayedOut]) -> tuple[StayedOut, ...]:
    """The clients whose updates have cost most over the rounds first."""
    return tuple(sorted(found, key=lambda one: (one.mean_cost, one.cost), reverse=True))
