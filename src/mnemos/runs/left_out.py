"""Whom a run has left out, and why."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from mnemos.rounds.arrivals import DROPPED, REJECTED
from mnemos.rounds.attempts import REPEATED


@dataclass(frozen=True)
class LeftOut:
    """Clients that were dropped and updates that were rejected, in all rounds of a run."""

    reasons: dict[str, int]
    """How many by what was recorded of them, such as `rejected: not finite`; most first."""
    rounds: int
    """In how many rounds."""
    repeated: int
    """Attempts at a round that were given up."""


def left_out(metrics: pd.DataFrame) -> LeftOut:
    """From a run's metrics."""
    of_clients = metrics[metrics["client"].notna()]
    found = of_clients[of_clients["name"].str.startswith((DROPPED, REJECTED))]
    reasons = {str(name): int(count) for name, count in found["name"].value_counts().items()}
    return LeftOut(reasons, int(found["round"].nunique()), int((metrics["name"] == REPEATED).sum()))
