"""The panel of significance tests: whether groups differ by more than chance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import Field

from mnemos.report.average import mean_of
from mnemos.report.blocks import Block, Cell, Column, Row, Table, dash, minus, whole
from mnemos.report.groups import RunGroup
from mnemos.report.panel import Panel, panels


@dataclass(frozen=True)
class Paired:
    """The mean difference of two groups over the seeds that both have finished, in percentage points."""

    seeds: int
    """The number of common seeds."""
    difference: float | None
    low: float | None = None
    """The lower end of the 95 % interval."""
    high: float | None = None
    """The upper end of the 95 % interval."""
    p: float | None = None
    """p of a two-sided paired t-test."""
    why: str = ""
    """Why there is no test, if there is none."""


@panels.register("significance")
class SignificancePanel(Panel):
    """Paired comparisons over seeds of each group with a reference."""

    title: ClassVar[str] = "Significance"
    order: ClassVar[int] = 100

    most: int = Field(
        24, ge=2, description="groups of a data set up to which any of them can be the reference"
    )

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """A table for each data set; the first choice of reference is the best group."""
        sets: dict[str, list[RunGroup]] = {}
        for group in groups:
            if group.accuracies:
                sets.setdefault(group.data, []).append(group)
        sets = {data: mine for data, mine in sets.items() if len(mine) > 1}
        for index, mine in enumerate(sets.values(), 1):
            yield self._table(mine, f"-{index}" if len(sets) > 1 else "")

    def _table(self, groups: Sequence[RunGroup], suffix: str) -> Table:
        order = sorted(groups, key=lambda group: -mean_of([*group.accuracies.values()]))
        references = order if len(order) <= self.most else order[:1]
        data = groups[0].experiment.data.title
        return Table(
            id=f"significance{suffix}",
            title="Differences over seeds" + (f", {data}" if suffix else ""),
            text="Final accuracy of each group minus that of the reference, in percentage points, over the "
            "seeds both have finished: mean difference, 95 % interval and p of a two-sided paired t-test, "
            "and p after Holm's correction for the comparisons with this reference.",
            note="A seed fixes partition, initial model and selection, so runs of the same seed are pairs. "
            "The best group is selected using the numbers that are compared, which makes it look better "
            "than it is; with few seeds, only large differences show.",
            columns=(
                Column("group"),
                Column("difference", "number"),
                Column("95 % from", "number", "lower end of the 95 % interval"),
                Column("to", "number", "upper end of the 95 % interval"),
                Column("p", "number"),
                Column("p (Holm)", "number"),
                Column("seeds", "number", "common seeds"),
                Column("verdict"),
            ),
            rows=tuple(
                row for index, reference in enumerate(references) for row in _rows(reference, order, index)
            ),
            choice="reference",
            choices=tuple(
                f"{group.label} (best)" if index == 0 else group.label
                for index, group in enumerate(references)
            ),
        )


def paired(accuracies: Mapping[int, float], reference: Mapping[int, float]) -> Paired:
    """Compare a group's accuracies with those of a reference; both are given by seed."""
    seeds = sorted(accuracies.keys() & reference.keys())
    if not seeds:
        return Paired(0, None, why="no common seed")
    differences = 100 * (
        np.array([accuracies[seed] for seed in seeds]) - np.array([reference[seed] for seed in seeds])
    )
    mean = float(differences.mean())
    if len(seeds) == 1:
        return Paired(1, mean, why="one common seed: no test")
    if np.ptp(differences) <= 1e-9:  # a rounding error away from equal
        same = "the same accuracies" if abs(mean) <= 1e-9 else "the same difference"
        return Paired(len(seeds), mean, why=f"{same} with every seed: no test")
    from scipy import stats  # slow to import, and only needed here

    test = stats.ttest_1samp(differences, 0.0)  # the paired test is one of the differences
    interval = test.confidence_interval(0.95)
    return Paired(len(seeds), mean, float(interval.low), float(interval.high), float(test.pvalue))


def holm(values: Sequence[float]) -> list[float]:
    """Holm's step-down correction of p-values; returns them in the given order."""
    adjusted = [0.0] * len(values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=lambda index: values[index])):
        highest = max(highest, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = highest
    return adjusted


def told_apart(group: RunGroup, groups: Sequence[RunGroup]) -> bool:
    """Whether a group differs from each other one on its data set, with p < 0.05 after Holm's correction."""
    others = [other for other in groups if other.data == group.data and other.id != group.id]
    found = [paired(other.accuracies, group.accuracies).p for other in others if other.accuracies]
    tested = [p for p in found if p is not None]
    return len(tested) == len(found) > 0 and max(holm(tested)) < 0.05


def _rows(reference: RunGroup, groups: Sequence[RunGroup], choice: int) -> Iterator[Row]:
    """The rows that compare each group with a reference, which is the table's choice number `choice`."""
    others = [group for group in groups if group.id != reference.id]
    results = [paired(group.accuracies, reference.accuracies) for group in others]
    tested = [index for index, result in enumerate(results) if result.p is not None]
    adjusted = dict(zip(tested, holm([p for result in results if (p := result.p) is not None]), strict=True))
    for index, (group, result) in enumerate(zip(others, results, strict=True)):
        yield Row(
            (
                Cell(group.label, group.label),
                _points(result.difference),
                _points(result.low),
                _points(result.high),
                _p(result.p),
                _p(adjusted.get(index)),
                whole(result.seeds),
                _verdict(result, adjusted.get(index)),
            ),
            (group.id,),
            choice,
        )


def _points(value: float | None) -> Cell:
    return dash() if value is None else Cell(minus(f"{value:+z.2f}"), value)


def _p(value: float | None) -> Cell:
    if value is None:
        return dash()
    if value < 0.001:
        return Cell("< 0.001", value)
    return Cell(f"{value:.{2 if value >= 0.1 else 3}f}", value)


def _verdict(result: Paired, p: float | None) -> Cell:
    if p is None or result.difference is None:
        return Cell(result.why, result.why)
    if p < 0.05:
        word = "higher" if math.copysign(1, result.difference) > 0 else "lower"
        return Cell(f"{word} (p < 0.05)", word)
    return Cell("no significant difference", "no significant difference")
