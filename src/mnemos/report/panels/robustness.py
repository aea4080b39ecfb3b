"""The panel of learning-rate robustness: how many learning rates come close to the best."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mnemos.report.average import mean_of, std_of
from mnemos.report.blocks import (
    Block,
    Cell,
    Column,
    Lines,
    Row,
    Series,
    Table,
    View,
    dash,
    rate,
    spread,
)
from mnemos.report.groups import RunGroup, labels
from mnemos.report.panel import Panel, panels

_FIELD = "local.lr"


@dataclass(frozen=True)
class Family:
    """Groups that differ in their learning rate alone, by learning rate."""

    label: str
    by_rate: dict[float, RunGroup]

    @property
    def usable(self) -> dict[float, RunGroup]:
        """The learning rates with which every ended run converged, with their groups."""
        return {lr: group for lr, group in self.by_rate.items() if group.accuracies and not group.diverged}

    @property
    def best(self) -> float | None:
        """The learning rate with the best mean accuracy, the smallest of equals; None without any."""
        means = {lr: mean_of([*group.accuracies.values()]) for lr, group in self.usable.items()}
        return max(means, key=lambda lr: means[lr], default=None)

    @property
    def top(self) -> float | None:
        """The mean accuracy with the best learning rate; None without any."""
        best = self.best
        return None if best is None else mean_of([*self.by_rate[best].accuracies.values()])

    @property
    def data(self) -> str:
        """A text that is equal for families with the same data set."""
        return next(iter(self.by_rate.values())).data

    def within(self, points: float) -> list[float]:
        """The learning rates whose mean accuracy is at most `points` percentage points below the best."""
        top = self.top
        if top is None:
            return []
        # Means that differ by exactly `points` can differ by a little more in floating point.
        least = top - points / 100 - 1e-9
        return [lr for lr, group in self.usable.items() if mean_of([*group.accuracies.values()]) >= least]


@panels.register("robustness")
class RobustnessPanel(Panel):
    """The learning rates that come close to the best one, for each method."""

    title: ClassVar[str] = "Learning-rate robustness"
    order: ClassVar[int] = 90

    points: tuple[float, ...] = (2.0, 3.0, 5.0)
    """How far below the best an accuracy may be to count as close, in percentage points."""

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """A table as in the appendix of the truncated-cross-entropy paper, and accuracy by learning rate."""
        known = families(groups)
        if not any(len(family.by_rate) > 1 for family in known):
            return
        tops: dict[str, float] = {}
        for family in known:
            tops[family.data] = max(tops.get(family.data, 0.0), family.top or 0.0)
        yield Table(
            id="robustness",
            title="Learning rates that come close to the best",
            text="For each method the best final accuracy, the local learning rate it was reached with, and "
            f"the rates whose mean accuracy is at most {', '.join(rate(p) for p in self.points[:-1])} and "
            f"{rate(self.points[-1])} percentage points (absolute, not relative) below it, as in table 2 of "
            "the truncated-cross-entropy paper (2022).",
            note="The paper writes “within 2 %”; most entries of its table fit its accuracies if that means "
            "points of accuracy (0.440 counts as within 5 % of 0.486), not a share of the best. Rates with "
            "which a run did not converge (NC) are listed separately and don't count as close.",
            columns=(
                Column("method"),
                Column("best accuracy", "spread"),
                Column("best rate", "number"),
                *(Column(f"within {rate(points)} points") for points in self.points),
                Column("NC"),
            ),
            rows=tuple(self._row(family, family.top == tops[family.data]) for family in known),
        )
        series = tuple(_series(known))
        if series:
            yield Lines(
                id="robustness-curve",
                title="Accuracy against learning rate",
                text="Mean final accuracy over seeds, in a band of one standard deviation, against the local "
                "learning rate (logarithmic).",
                x="learning rate",
                log=True,
                marked=True,
                views=(View("accuracy", "final accuracy", series, percent=True),),
            )

    def _row(self, family: Family, best: bool) -> Row:
        lr = family.best
        lost = [lr for lr, group in family.by_rate.items() if group.diverged]
        # Columns are sorted by the number of rates that are close: more is more robust.
        close = [family.within(points) for points in self.points]
        group = None if lr is None else family.by_rate[lr]
        cells = (
            Cell(family.label, family.label),
            spread([*group.accuracies.values()], best=best) if group else Cell("NC" if lost else "–"),
            dash() if lr is None else Cell(rate(lr), lr),
            *(Cell(", ".join(map(rate, rates)) or "–", len(rates)) for rates in close),
            Cell(", ".join(map(rate, lost)), len(lost)),
        )
        return Row(cells, tuple(group.id for group in family.by_rate.values()))


def families(groups: Sequence[RunGroup]) -> list[Family]:
    """Groups in families whose settings differ in the learning rate alone, with rates in rising order."""
    found: dict[str, dict[float, RunGroup]] = {}
    for group in groups:
        rest = {field: value for field, value in group.settings.items() if field != _FIELD}
        found.setdefault(json.dumps(rest, sort_keys=True), {})[group.settings[_FIELD]] = group
    firsts = [next(iter(by_rate.values())) for by_rate in found.values()]
    names = labels([json.loads(rest) for rest in found], [first.readings[0].run.path for first in firsts])
    return [
        Family(name, dict(sorted(by_rate.items())))
        for name, by_rate in zip(names, found.values(), strict=True)
    ]


def _series(known: Sequence[Family]) -> Iterator[Series]:
    for index, family in enumerate(known):
        # Rates with which some seed has an accuracy, even if another seed diverged.
        rates = {lr: [*group.accuracies.values()] for lr, group in family.by_rate.items() if group.accuracies}
        if not rates:
            continue
        stds = np.array([std_of(values) or 0.0 for values in rates.values()])
        yield Series(
            family.label,
            np.array(list(rates)),
            np.array([mean_of(values) for values in rates.values()]),
            stds if any(len(values) > 1 for values in rates.values()) else None,
            tuple(family.by_rate[lr].id for lr in rates),
            index,
            owners=tuple(family.by_rate[lr].id for lr in rates),
        )
