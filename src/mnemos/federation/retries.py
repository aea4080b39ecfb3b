"""Rounds that come to too few updates: other clients are asked, and in the end the run pauses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from mnemos.clocks.waiting import Waiting
from mnemos.errors import DivergedError, MnemosError, PausedError
from mnemos.federation.population import Population
from mnemos.federation.records import failed_records
from mnemos.federation.round import Attempt, GroupResult, rejected
from mnemos.screens.sound import NOT_FINITE

Results = Sequence[GroupResult]
"""Of an attempt: the result of each group."""


def arrived(results: Results) -> tuple[list[int], int]:
    """(the clients that answered in an attempt, how many were asked)."""
    clients = [client for result in results for client in result.arrived]
    return clients, sum(result.asked for result in results)


def spoilt(round: int) -> DivergedError:
    """The error to end with when training has diverged at the clients."""
    return DivergedError(
        f"round {round}: what clients send is not finite any more; a smaller local.lr may help"
    )


class Retries:
    """How often a round is tried, with which clients, and when it has come to enough updates."""

    def __init__(self, population: Population, waiting: Waiting | None, *, private: bool) -> None:
        """`private`: the experiment promises privacy, so what clients send must not decide who is asked."""
        self._population, self._waiting, self._private = population, waiting, private
        self.failed_attempts, self.failed_round = 0, 0
        """How many attempts at a round were made before the run paused, and which round that is."""

    def attempts(self, round: int) -> Iterator[Attempt]:
        """The attempts at a round: first its cohort, then other clients.

        With privacy a client is in a round with the probability that ε is computed from: others don't step
        in. The same clients are asked once whenever the run goes on, and their faults are drawn anew.
        """
        cohort = tried = self._population.cohort(round)
        for index in self._indices(round):
            if index and not self._private:
                cohort = self._population.others(round, index, tried)
                tried = np.union1d(tried, cohort)
            clients, vanishes = cohort.tolist(), self._population.experiment.vanishes
            gone = {client: None for client in clients if vanishes(client, round, index)}
            present = [client for client in clients if client not in gone]
            late, steps = ({}, {}) if self._waiting is None else self._waiting.late(present, round)
            yield Attempt(cohort, {**gone, **late}, steps)

    def enough(self, results: Results, failed: Sequence[Results] = ()) -> bool:
        """Whether an attempt has come to enough updates; `failed` are the earlier attempts at the round.

        So has a round for which no client had samples. An attempt that finds no client to ask after others
        have failed hasn't.

        With privacy all clients that answer count. None is needed, as noise alone will do, unless the
        experiment asks for more than one: then as many of them as chance has put into the cohort, which would
        be the same whenever it is drawn.
        """
        fewest = self._population.experiment.min_clients
        clients, asked = arrived(results)
        if self._private:
            return fewest == 1 or len(clients) >= min(fewest, asked)
        return sum(result.used for result in results) >= fewest or not (asked or failed)

    def exhausted(self, round: int, failed: Sequence[Results]) -> MnemosError:
        """The error to end with when there is no attempt left."""
        self.failed_attempts, self.failed_round = self._indices(round).stop, round
        return _error(round, failed, self._population.experiment.min_clients)

    def _indices(self, round: int) -> range:
        before = self.failed_attempts if round == self.failed_round else 0
        if self._private:
            return range(before, before + 1)
        return range(before + self._population.experiment.retries + 1)


def _error(round: int, failed: Sequence[Results], fewest: int) -> MnemosError:
    """Divergence if more than half of all clients that were asked sent updates, none finite; else a pause.

    A few bad clients can't end a run while the others don't answer.
    """
    left_out = [record for record in failed_records(round, failed) if record.client is not None]
    reasons = Counter(record.name for record in left_out)
    if reasons[rejected(NOT_FINITE)] == sum(len(arrived(results)[0]) for results in failed):
        # Nothing else has arrived, so there is a record of every client that was asked.
        astray = {record.client for record in left_out if record.name == rejected(NOT_FINITE)}
        if 2 * len(astray) > len({record.client for record in left_out}):
            return spoilt(round)
    found = ", ".join(f"{count} {name}" for name, count in reasons.most_common())
    times = "" if len(failed) == 1 else f" in {len(failed)} attempts"
    return PausedError(f"round {round} came to too few updates{times} (min_clients is {fewest}): {found}")
