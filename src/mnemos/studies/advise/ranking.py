"""The finalists in order, with intervals over seeds, and which of their differences are real."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from mnemos.report.average import mean_of, std_of
from mnemos.report.panels.significance import holm, paired
from mnemos.studies.advise.pilots import Pilot
from mnemos.studies.advise.search import Candidate, Found, SearchGoal

LEVEL, FEWEST = 0.05, 3
"""A difference is called real if p, after Holm's correction, is below the level, over this many seeds."""

Verdict = Literal["best", "worse", "not told apart", "did not converge"]


@dataclass(frozen=True)
class Ranked:
    """A finalist, with means over the seeds that all finalists have in common."""

    name: str
    changes: dict[str, Any]
    values: dict[int, float]
    """What was maximised, by seed."""
    rounds: int
    """Rounds of its pilots: fewer than a whole pilot's if there was no time for the finals."""
    value: float | None
    """Its mean; None if some seed did not converge."""
    low: float | None
    """The lower end of the 95 % interval of the mean accuracy, by Student's t; None with one seed."""
    high: float | None
    accuracy: float | None
    """Mean validation accuracy."""
    forgetting: float | None
    seconds: float
    """Seconds of a whole pilot."""
    bytes: float
    """Bytes sent and received in a round."""
    verdict: Verdict
    difference: float | None = None
    """Mean difference from the winner in percentage points, over pairs of the same seed."""
    difference_low: float | None = None
    difference_high: float | None = None
    p: float | None = None
    """p of the paired t-test against the winner, after Holm's correction for all of them."""
    front: bool = False
    """Whether no other finalist has both a higher accuracy and less forgetting."""

    @property
    def facts(self) -> dict[str, Any]:
        """All of it for JSON."""
        return asdict(self)


def rank(found: Found, names: Mapping[int, str]) -> list[Ranked]:
    """The finalists, the best mean first; `names` are those of candidates, by their identity."""
    pilots = {id(candidate): _pilots(found, candidate) for candidate in found.finalists}
    common = _common(list(pilots.values()))
    values = {key: _values(found.goal, mine, common) for key, mine in pilots.items()}
    order = sorted(found.finalists, key=lambda finalist: -_score(values[id(finalist)], common))
    if not order:
        return []
    best = values[id(order[0])]
    compared = {
        id(finalist): paired(values[id(finalist)], best)
        for finalist in order[1:]
        if len(values[id(finalist)]) == len(common)
    }
    tested = {key: result.p for key, result in compared.items() if result.p is not None}
    corrected = dict(zip(tested, holm(list(tested.values())), strict=True))
    ranked = []
    for index, finalist in enumerate(order):
        mine, result, p = values[id(finalist)], compared.get(id(finalist)), corrected.get(id(finalist))
        verdict: Verdict = "best" if index == 0 else "not told apart"
        if len(mine) < len(common) or not common:
            verdict = "did not converge"
        elif p is not None and p < LEVEL and len(common) >= FEWEST:
            verdict = "worse"
        row = _row(
            finalist, names[id(finalist)], mine, [pilots[id(finalist)][seed] for seed in common], verdict
        )
        if result is not None:
            row |= {
                "difference": result.difference,
                "difference_low": result.low,
                "difference_high": result.high,
                "p": p,
            }
        ranked.append(row)
    front = _front(ranked)
    return [Ranked(**row, front=index in front) for index, row in enumerate(ranked)]


def cheapest(ranked: Sequence[Ranked]) -> Ranked | None:
    """The runner-up that costs least: fewest bytes per round, then the shortest time.

    It is looked for among those that can't be told apart from the winner, and if there is none, among all
    that converged.
    """
    others = [finalist for finalist in ranked[1:] if finalist.verdict != "did not converge"]
    alike = [finalist for finalist in others if finalist.verdict == "not told apart"]
    return min(alike or others, key=lambda finalist: (finalist.bytes, finalist.seconds), default=None)


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of a mean accuracy: mean ± t · s / √n, with Student's t of n − 1 degrees of freedom.

    It is cut off at 0 and 1. None for a single value.
    """
    spread = std_of(values)
    if spread is None:
        return None
    from scipy import stats  # slow to import

    half = float(stats.t.ppf(0.975, len(values) - 1)) * spread / math.sqrt(len(values))
    return max(0.0, mean_of(values) - half), min(1.0, mean_of(values) + half)


def _pilots(found: Found, candidate: Candidate) -> dict[int, Pilot]:
    """A finalist's pilots by seed: those of the finals, or without any that of the search."""
    if any(other.seeds for other in found.finalists):
        return candidate.seeds
    return {} if candidate.pilot is None else {found.goal.base.seed: candidate.pilot}


def _common(pilots: Sequence[dict[int, Pilot]]) -> list[int]:
    """The seeds that all finalists have been run with."""
    if not pilots:
        return []
    return sorted(set.intersection(*(set(mine) for mine in pilots)))


def _values(goal: SearchGoal, mine: Mapping[int, Pilot], common: Sequence[int]) -> dict[int, float]:
    return {seed: goal.value(mine[seed]) for seed in common if mine[seed].accuracy is not None}


def _score(values: Mapping[int, float], common: Sequence[int]) -> float:
    """The mean; a finalist of which a seed did not converge comes after all others."""
    if not values:
        return -math.inf
    return mean_of(list(values.values())) - (0.0 if len(values) == len(common) else 2.0)


def _row(
    finalist: Candidate, name: str, values: dict[int, float], pilots: Sequence[Pilot], verdict: Verdict
) -> dict[str, Any]:
    accuracies = [pilot.accuracy for pilot in pilots if pilot.accuracy is not None]
    ends = interval(accuracies) if verdict != "did not converge" else None
    forgotten = [pilot.forgetting for pilot in pilots if pilot.forgetting is not None]
    whole = len(accuracies) == len(pilots) > 0
    return {
        "name": name,
        "changes": dict(finalist.changes),
        "values": values,
        "rounds": max((pilot.rounds for pilot in pilots), default=0),
        "value": mean_of(list(values.values())) if whole else None,
        "low": ends[0] if ends else None,
        "high": ends[1] if ends else None,
        "accuracy": mean_of(accuracies) if whole else None,
        "forgetting": mean_of(forgotten) if forgotten else None,
        "seconds": mean_of([pilot.seconds for pilot in pilots]) if pilots else 0.0,
        "bytes": mean_of([pilot.bytes for pilot in pilots]) if pilots else 0.0,
        "verdict": verdict,
    }


def _front(rows: Sequence[dict[str, Any]]) -> set[int]:
    """The indices of the rows that no other beats in both accuracy and forgetting."""
    points = {
        index: (row["accuracy"], -row["forgetting"])
        for index, row in enumerate(rows)
        if row["accuracy"] is not None and row["forgetting"] is not None
    }
    return {
        index
        for index, mine in points.items()
        if not any(
            all(b >= a for a, b in zip(mine, other, strict=True)) and other != mine
            for other in points.values()
        )
    }
