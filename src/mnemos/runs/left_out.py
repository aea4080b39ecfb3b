"""How many clients and updates a run has left out, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mnemos.federation.records import REPEATED
from mnemos.federation.round import NOTED


@dataclass(frozen=True)
class LeftOut:
    """Clients that were dropped and updates that were rejected or shortened, in all rounds of a run."""

    reasons: dict[str, int]
    """How many, by reason such as `rejected: not finite`; the most frequent first."""
    rounds: int
    """The number of rounds in which any was left out."""
    repeated: int
    """The number of attempts at a round that were given up and repeated."""


def left_out(records: Iterable[Mapping[str, Any]]) -> LeftOut:
    """Count what was left out, from a run's records."""
    reasons: Counter[str] = Counter()
    rounds, repeated = set(), 0
    for record in records:
        if record["name"] == REPEATED:
            repeated += 1
        elif record.get("client") is not None and record["name"].startswith(NOTED):
            reasons[record["name"]] += 1
            rounds.add(record["round"])
    return LeftOut(dict(reasons.most_common()), len(rounds), repeated)
