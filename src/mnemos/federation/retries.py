"""Rounds that bring too few updates: the server asks other clients, and pauses the run if that fails, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from mnemos.clocks.waiting import Waiting
from mnemos.errors import DivergedError, MnemosError, PausedError
from mnemos.federation.population import Population
from mnemos.federation.records import failed_records
from mnemos.federation.round import Attempt, GroupResult, rejected
from mnemos.screens.sound import NOT_FINITE

Results = Sequence[GroupResult]
"""The results of the groups in one attempt."""


def arrived(results: Results) -> tuple[list[int], int]:
    """(the clients that answered in an attempt, the number of clients that were asked)."""
    clients = [client for result in results for client in result.arrived]
    return clients, sum(result.asked for result in results)


def spoilt(round: int) -> DivergedError:
    """The error that ends a run in which the clients' training has diverged."""
    return DivergedError(
        f"round {round}: what clients send is not finite any more; a smaller local.lr may help"
    )


class Retries:
    """How often a round is attempted, with which clients, and how many updates are enough."""

    def __init__(self, population: Population, waiting: Waiting | None, *, private: bool) -> None:
        """`private`: the experiment promises privacy, so what clients send must not decide who is asked."""
        self._population, self._waiting, self._private = population, waiting, private
        self.failed_attempts, self.failed_round = 0, 0
        """How many attempts were made before the run paused, and at which round."""

    def attempts(self, round: int, without: Collection[int] = ()) -> Iterator[Attempt]:
        """The attempts at a round: the first asks its cohort, the next ones ask other clients.

        Clients in `without` vanish like drop-outs.

        With privacy no others are asked, because ε assumes that the cohort is drawn once. The same cohort is
        asked once more each time that the paused run is resumed, and its drop-outs are drawn again.
        """
        cohort = tried = self._population.cohort(round)
        for index in self._indices(round):
            if index and not self._private:
                cohort = self._population.others(round, index, tried)
                tried = np.union1d(tried, cohort)
            clients, vanishes = cohort.tolist(), self._population.experiment.vanishes
            gone = {client: None for client in clients if client in without or vanishes(client, round, index)}
            present = [client for client in clients if client not in gone]
            late, steps = ({}, {}) if self._waiting is None else self._waiting.late(present, round)
            yield Attempt(cohort, {**gone, **late}, steps)

    def enough(self, results: Results, failed: Sequence[Results] = ()) -> bool:
        """Whether an attempt has brought enough updates; `failed` are the earlier attempts at the round.

        Without privacy, `min_clients` usable updates are enough. If the first attempt finds no client to ask,
        the round passes without updates; if a later attempt finds none, it has failed like those before it.

        With privacy, clients that answer are counted, whether or not their updates are usable. If
        `min_clients` is 1, none has to answer: the server adds noise to an empty sum. If it is larger, that
        many must answer, or all that were asked if chance has drawn a smaller cohort.
        """
        fewest = self._population.experiment.min_clients
        clients, asked = arrived(results)
        if self._private:
            return fewest == 1 or len(clients) >= min(fewest, asked)
        return sum(result.used for result in results) >= fewest or not (asked or failed)

    def exhausted(self, round: int, failed: Sequence[Results]) -> MnemosError:
        """The error to raise after the last attempt; remembers how many attempts there were."""
        self.failed_attempts, self.failed_round = self._indices(round).stop, round
        return _error(round, failed, self._population.experiment.min_clients)

    def _indices(self, round: int) -> range:
        """The numbers of the attempts to make at a round; draws of an attempt depend on its number.

        A run that has paused at this round repeats the earlier attempts, whose clients may be back, before it
        makes new ones. With privacy, it makes one new attempt and nothing else.
        """
        before = self.failed_attempts if round == self.failed_round else 0
        if self._private:
            return range(before, before + 1)
        return range(before + self._population.experiment.retries + 1)


def _error(round: int, failed: Sequence[Results], fewest: int) -> MnemosError:
    """The error after the last attempt: divergence or a pause.

    The run has diverged if no update was finite, and more than half of the clients that were asked sent one.
    So a few bad clients can't end a run while the others don't answer.
    """
    left_out = [record for record in failed_records(round, failed) if record.client is not None]
    reasons = Counter(record.name for record in left_out)
    if reasons[rejected(NOT_FINITE)] == sum(len(arrived(results)[0]) for results in failed):
        # No other update has arrived, so `left_out` has a record of every client that was asked.
        astray = {record.client for record in left_out if record.name == rejected(NOT_FINITE)}
        if 2 * len(astray) > len({record.client for record in left_out}):
            return spoilt(round)
    found = ", ".join(f"{count} {name}" for name, count in reasons.most_common())
    times = "" if len(failed) == 1 else f" in {len(failed)} attempts"
    return PausedError(f"round {round} came to too few updates{times} (min_clients is {fewest}): {found}")
