"""Which learning rates come close to the best."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from mnemos.registry import Options
from mnemos.reproduce.cell import Outcome
from mnemos.reproduce.show import Results, Show, Shown, shows
from mnemos.reproduce.table import NOTHING, Sheet, spread


class Close(Options):
    """The best accuracy of a method, and the learning rates that come close to it."""

    best: float
    at: float | None = None
    """The best rate, if it is given."""
    within: tuple[tuple[float, ...], ...]
    """The rates for each of the tolerances."""


@shows.register("rates")
class Rates(Show):
    """A line a method and data set: the best mean accuracy, its rate, and the rates not far below it."""

    within: tuple[float, ...] = (0.02, 0.03, 0.05)
    """How far below the best accuracy still counts."""
    reported: dict[str, dict[str, Close]] = Field(default_factory=dict)
    """What the paper gives, by what rows have in common that differ in their rate alone, and by column."""

    def show(self, results: Results, folder: Path) -> Shown:
        """The paper's line above ours."""
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


def _methods(results: Results) -> list[list[Outcome]]:
    """Outcomes that differ in their learning rate alone."""
    grouped: dict[str, list[Outcome]] = {}
    for one in results.outcomes:
        experiment = one.cell.experiment
        local = experiment.local.model_copy(update={"lr": 1.0})
        grouped.setdefault(experiment.model_copy(update={"local": local}).hash(), []).append(one)
    return list(grouped.values())


def _common(outcomes: list[Outcome]) -> str:
    first, *others = (one.cell.row for one in outcomes)
    return ", ".join(name for name in first if all(name in other for other in others))


def _close(outcomes: list[Outcome], within: tuple[float, ...]) -> Close | None:
    # A rate with which some seed did not converge is none to rely on.
    sound = [one for one in outcomes if not one.diverged]
    means = {one.cell.experiment.local.lr: one.mean for one in sound if one.mean is not None}
    if not means:
        return None
    at = max(means, key=lambda rate: means[rate])
    # The tiny addend: 0.80 − 0.78 is more than 0.02 in floating point.
    rates = (tuple(rate for rate in means if means[at] - means[rate] <= share + 1e-9) for share in within)
    return Close(best=means[at], at=at, within=tuple(rates))


def _best(close: Close | None) -> str:
    if close is None:
        return NOTHING
    return spread(close.best, None) + ("" if close.at is None else f" ({close.at:g})")


def _list(rates: tuple[float, ...]) -> str:
    return ", ".join(f"{rate:g}" for rate in rates) or NOTHING
