"""The numbers recorded of every round: its clients, its training loss, the bytes sent and received.

Accuracies are recorded in `evaluation.py`, and what measures find by `mnemos.measures`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain

from mnemos.federation.round import NOTED, GroupResult, RoundResult
from mnemos.measures.measure import Record

REPEATED = "repeated"
"""The name of the record of a failed attempt at a round; its value is the number of usable updates."""


def round_records(round: int, result: RoundResult) -> list[Record]:
    """All that is recorded of a round, except what measures and the evaluation find."""
    records = [
        *failed_records(round, result.failed),
        *chain.from_iterable(group.records for group in result.groups),
        *result.records,
    ]
    loss = mean_loss(result)
    if not math.isnan(loss):
        records.append(Record(round, "train_loss", loss))
    attempts = [group for groups in (*result.failed, result.groups) for group in groups]
    bytes_up = result.bytes_between_peers + sum(group.bytes_up for group in attempts)
    bytes_down = result.bytes_between_peers + sum(group.bytes_down for group in attempts)
    return [
        *records,
        Record(round, "bytes_up", float(bytes_up)),
        Record(round, "bytes_down", float(bytes_down)),
    ]


def failed_records(round: int, failed: Sequence[Sequence[GroupResult]]) -> Iterator[Record]:
    """The records of failed attempts: the clients whose updates didn't count, and `REPEATED` for each."""
    for results in failed:
        for result in results:
            yield from (record for record in result.records if record.name.startswith(NOTED))
        yield Record(round, REPEATED, float(sum(result.used for result in results)))


def mean_loss(result: RoundResult) -> float:
    """The mean training loss over the samples of a round; NaN if no client has trained."""
    samples = sum(group.samples for group in result.groups)
    return sum(group.loss for group in result.groups) / samples if samples else math.nan
