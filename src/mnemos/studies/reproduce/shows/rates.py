"""A table of the learning rates whose accuracy is close to the best."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from mnemos.common.registry import Options
from mnemos.studies.reproduce.cell import CellOutcome
from mnemos.studies.reproduce.show import RecipeResults, Show, Shown, shows
from mnemos.studies.reproduce.table import NOTHING, Sheet, spread


class Close(Options):
    """The best accuracy of a method, and the learning rates that come close to it."""

    best: float
    at: float | None = None
    """The learning rate of the best accuracy; None if the paper doesn't give it."""
    within: tuple[tuple[float, ...], ...]
    """The learning rates within each of the tolerances."""


@shows.register("rates")
class RatesShow(Show):
    """A row for each method and column: the best mean accuracy, its learning rate, and rates close to it."""

    within: tuple[float, ...] = (0.02, 0.03, 0.05)
    """The tolerances: how far below the best an accuracy may be to count as close."""
    reported: dict[str, dict[str, Close]] = Field(default_factory=dict)
    """What the paper reports, by method and column; a method is the common part of its rows' names."""

    def show(self, results: RecipeResults, folder: Path) -> Shown:
        """Make a sheet with the paper's row above ours for each method and column."""
        header = ("row", "column", "whose", "best (rate)", *(f"within {share:.0%}" for share in self.within))
        lines: list[tuple[str, ...]] = []
        numbers: list[dict[str, Any]] = []
        for outcomes in _methods(results):
            row, column = _common(outcomes), outcomes[0].cell.column
            theirs = self.reported.get(row, {}).get(column)
            for whose, close in (("paper", theirs), ("ours", _close(outcomes, self.within))):
                lists = [_list(rates) for rates in close.within] if close else [NOTHING] * len(self.within)
                lines.append((row, column, whose, _best(close), *lists))
                named = {f"within_{share:g}": text for share, text in zip(self.within, lists, strict=True)}
                best = {"best": close and close.best, "rate": close and close.at}
                numbers.append({"row": row, "column": column, "whose": whose, **best, **named})
        return Shown(Sheet(header, lines, numbers))


def _methods(results: RecipeResults) -> list[list[CellOutcome]]:
    """Outcomes in groups that differ in their learning rate alone."""
    grouped: dict[str, list[CellOutcome]] = {}
    for outcome in results.outcomes:
        experiment = outcome.cell.experiment
        local = experiment.local.model_copy(update={"lr": 1.0})
        grouped.setdefault(experiment.model_copy(update={"local": local}).hash(), []).append(outcome)
    return list(grouped.values())


def _common(outcomes: list[CellOutcome]) -> str:
    """The part of the rows' names that all outcomes have in common."""
    first, *others = (outcome.cell.row for outcome in outcomes)
    return ", ".join(name for name in first if all(name in other for other in others))


def _close(outcomes: list[CellOutcome], within: tuple[float, ...]) -> Close | None:
    # A rate with which some seed did not converge can't be relied on.
    sound = [outcome for outcome in outcomes if not outcome.diverged]
    means = {outcome.cell.experiment.local.lr: outcome.mean for outcome in sound if outcome.mean is not None}
    if not means:
        return None
    at = max(means, key=lambda rate: means[rate])
    # 1e-9 is added because 0.80 − 0.78 is more than 0.02 in floating point.
    rates = (tuple(rate for rate in means if means[at] - means[rate] <= share + 1e-9) for share in within)
    return Close(best=means[at], at=at, within=tuple(rates))


def _best(close: Close | None) -> str:
    if close is None:
        return NOTHING
    return spread(close.best, None) + ("" if close.at is None else f" ({close.at:g})")


def _list(rates: tuple[float, ...]) -> str:
    return ", ".join(f"{rate:g}" for rate in rates) or NOTHING
