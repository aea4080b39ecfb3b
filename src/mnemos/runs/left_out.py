"""How many clients and updates a run has left out, and why."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

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


def left_out(metrics: pd.DataFrame) -> LeftOut:
    """Count what was left out, from a run's metrics."""
    of_clients = metrics[metrics["client"].notna()]
    found = of_clients[of_clients["name"].str.startswith(NOTED)]
    reasons = {str(name): int(count) for name, count in found["name"].value_counts().items()}
    return LeftOut(reasons, int(found["round"].nunique()), int((metrics["name"] == REPEATED).sum()))
