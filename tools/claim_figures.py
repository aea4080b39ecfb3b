"""The figures of the claims: effects beside the papers', curves, and maps of what clients forgot."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from claim_runs import Line, as_matrix, recipe_of
from effects import Verdict
from mnemos.data.partition import Floats
from mnemos.plots.forgetting_maps import forgetting_figure
from mnemos.plots.style import COLOURS, plain, save
from mnemos.report.average import mean_curve
from mnemos.runs.forgetting_matrix import ForgettingMatrix
from mnemos.studies.reproduce.cell import RecipeCell
from mnemos.studies.reproduce.shows.rates import RatesShow
from verdicts import Claim, Decided, decide

Runs = list[tuple[list[float], Floats]]
"""Curves as places and values, one a run."""
_VERDICTS = dict(zip(Verdict, (COLOURS[2], COLOURS[5], COLOURS[6], COLOURS[4]), strict=True))
_MAPS = 2
"""Cells of which maps are drawn."""


def draw(claims: Iterable[Claim], lines: Sequence[Line], path: Path) -> Path | None:
    """Effects with their intervals beside the papers', one line a part; None if neither is known of any.

    Points and decades have a panel each.
    """
    units: dict[str, list[tuple[str, Decided]]] = {}
    for claim in claims:
        for one in decide(claim, lines):
            if one.estimate is not None or one.part.paper is not None:
                units.setdefault(one.part.unit, []).append((f"{claim.number}  {one.part.says}", one))
    if not units:
        return None
    heights = [1 + len(found) for found in units.values()]
    figure = Figure(figsize=(9, 1 + 0.36 * sum(heights)), layout="constrained")
    panels = figure.subplots(len(units), squeeze=False, height_ratios=heights).flat
    for axes, (unit, found) in zip(panels, units.items(), strict=True):
        _effects(axes, unit, found)
    for one_verdict, colour in _VERDICTS.items():
        panels[0].plot([], [], "o", color=colour, label=str(one_verdict))
    panels[0].plot([], [], "D", color="black", markerfacecolor="none", label="paper")
    figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return save(figure, path)


def _effects(axes: Axes, unit: str, found: Sequence[tuple[str, Decided]]) -> None:
    for place, (_, one) in enumerate(found):
        if (ours := one.estimate) is not None:
            mean, half = one.part.shown(ours.mean), one.part.shown(ours.half)
            axes.errorbar(mean, place, xerr=half, fmt="o", color=_VERDICTS[one.verdict], capsize=3)
        if one.part.paper is not None:
            axes.plot(one.part.shown(one.part.paper), place, "D", color="black", markerfacecolor="none")
    axes.axvline(0, color="0.4", linewidth=1)
    axes.set_yticks(range(len(found)), [plain(label, 90) for label, _ in found], fontsize=8)
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlabel(f"effect in {unit} (95 % interval over seeds)", fontsize=9)
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def draw_curves(
    recipe: str, cells: Sequence[RecipeCell], lines: Sequence[Line], path: Path, *, forgetting: bool = False
) -> Path | None:
    """Test accuracy or forgetting over rounds: a panel a column, a line a row, mean and deviation over seeds.

    In recipes of rates a line would be one of many: there it is the final accuracy over the rate. Columns of
    which nothing has been run are left out; None if that is all of them.
    """
    over_rates = isinstance(recipe_of(recipe).show, RatesShow)
    panels = _panels(recipe, cells, lines, over_rates, forgetting)
    if not panels:
        return None
    columns = min(3, len(panels))
    height = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(1 + 3.6 * columns, 0.8 + 2.6 * height), layout="constrained")
    places = [*figure.subplots(height, columns, squeeze=False, sharey=True).flat]
    rows = dict.fromkeys(row for curves in panels.values() for row in curves)
    colours = {row: COLOURS[index % len(COLOURS)] for index, row in enumerate(rows)}
    for axes, (column, curves) in zip(places, panels.items(), strict=False):
        for row, runs in curves.items():
            _curve(axes, runs, colours[row], "o-" if over_rates else "-")
        axes.set_title(plain(column), fontsize=9)
        axes.set_xlabel("learning rate" if over_rates else "round", fontsize=9)
        axes.set_xscale("log" if over_rates else "linear")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    places[0].set_ylabel("mean forgetting F" if forgetting else "test accuracy", fontsize=9)
    for axes in places[len(panels) :]:
        axes.remove()
    for row, colour in colours.items():
        places[0].plot([], [], color=colour, label=plain(row))
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return save(figure, path)


def _curve(axes: Axes, runs: Runs, colour: str, line: str) -> None:
    curve = mean_curve(runs)
    assert curve is not None
    x, mean, std = curve
    axes.plot(x, mean, line, color=colour, markersize=3)
    if std is not None:
        axes.fill_between(x, mean - std, mean + std, color=colour, alpha=0.2, linewidth=0)


def _panels(
    recipe: str, cells: Sequence[RecipeCell], lines: Sequence[Line], over_rates: bool, forgetting: bool
) -> dict[str, dict[str, Runs]]:
    """The runs of each row by column."""
    panels: dict[str, dict[str, Runs]] = {}
    for cell in cells:
        rate = cell.experiment.local.lr
        row = ", ".join(part for part in cell.row if not over_rates or part != f"lr {rate:g}")
        for line in _of(recipe, cell, lines):
            final = line["figures"].get("accuracy", np.nan)
            points = [(rate, final)] if over_rates else _over_rounds(cell, line, forgetting)
            if points:
                x, y = zip(*points, strict=True)
                panels.setdefault(cell.column, {}).setdefault(row, []).append(([*x], np.array(y)))
    return panels


def _over_rounds(cell: RecipeCell, line: Line, forgetting: bool) -> list[tuple[float, float]]:
    """Forgetting where it was measured; accuracy in the rounds of `test_every`, as the last are many."""
    if forgetting:
        return [(number, value) for number, value in line["curves"].get("forgetting", [])]
    every = cell.experiment.evaluate.test_every or 1
    curve = line["curves"].get("test_accuracy", [])
    return [(number, value) for number, value in curve if number % every == 0]


def _of(recipe: str, cell: RecipeCell, lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if f"{recipe}: {cell.name}" in line["cells"]]


def draw_maps(recipe: str, cells: Sequence[RecipeCell], lines: Sequence[Line], path: Path) -> Path | None:
    """What clients forgot of each other's data in the last round measured, of the first cells that have it.

    All are of one seed, in which the same clients trained: the one that most cells have.
    """
    kept: dict[tuple[int, str], dict[str, Any]] = {
        (line["seed"], cell.name): line["matrix"]
        for cell in cells
        for line in _of(recipe, cell, lines)
        if "matrix" in line
    }
    if not kept:
        return None
    (seed, _), *_ = Counter(seed for seed, _ in kept).most_common(1)
    chosen = [(name, matrix) for (own, name), matrix in kept.items() if own == seed][:_MAPS]
    rounds = sorted({matrix["round"] for _, matrix in chosen})
    grid: dict[str, dict[int, ForgettingMatrix | None]] = {}
    for name, matrix in chosen:
        grid[name] = {number: as_matrix(matrix) if number == matrix["round"] else None for number in rounds}
    return save(forgetting_figure(grid, f"seed {seed}"), path)
