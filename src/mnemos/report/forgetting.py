"""Who forgot what: heat-maps of the forgetting of a round."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from mnemos.data.partition import Floats
from mnemos.errors import ConfigError
from mnemos.report.heatmap import HeatMap, Scale, draw_map, draw_scale
from mnemos.report.style import plain, save
from mnemos.runs.forgetting import ForgettingMatrix, measured_rounds, read_matrix
from mnemos.runs.run import Run

Grid = Mapping[str, Mapping[int, ForgettingMatrix | None]]
"""Matrices by label and round, of the same rounds for all labels; None: not measured."""

# Lengths of the page, in inches.
_SIDE, _NARROW = 3.0, 2.64
"""Height of a map; its width with a last column, and without one: cells are about equally wide."""
_LEFT, _RIGHT, _TICKS, _BETWEEN = 0.9, 0.3, 0.6, 0.75
"""Beside the first map and the last; between the maps of a pair; between pairs."""
_TOP, _HEADING, _BENEATH, _FOOT = 0.45, 0.55, 0.4, 1.25
"""Above all; above a row of maps; beneath it; for the colour bars, with the words beneath the last row."""

_MOST = 60
"""Runs × rounds on a page; more would be a picture too large to open."""


def draw_heatmaps(runs: Mapping[str, Run], rounds: Sequence[int], path: Path, title: str = "") -> Path:
    """Two maps a run and round: what models forgot of each client's data, and the accuracy they have on it.

    Colours mean the same everywhere. The place of a round that a run didn't measure stays empty.
    """
    return save(forgetting_figure(read_grid(runs, rounds), title), path)


def draw_class_heatmaps(runs: Mapping[str, Run], rounds: Sequence[int], path: Path, title: str = "") -> Path:
    """A map a run and round: the accuracy that each client's model lost on each class."""
    return save(class_figure(read_grid(runs, rounds, classes=True), title), path)


def read_grid(runs: Mapping[str, Run], rounds: Sequence[int], *, classes: bool = False) -> Grid:
    """The matrices of a figure; each run's metrics are read once."""
    grid: dict[str, dict[int, ForgettingMatrix | None]] = {}
    for label, run in runs.items():
        metrics = run.metrics
        grid[label] = dict.fromkeys(rounds)
        for number in set(rounds) & set(measured_rounds(metrics)):
            grid[label][number] = read_matrix(metrics, number, classes=classes, source=run.path)
    return grid


def forgetting_figure(grid: Grid, title: str = "") -> Figure:
    """The figure of `draw_heatmaps`."""
    lost = _lost(grid, "forgetting F = accuracy before − after\nred: forgotten, blue: gained")
    accuracy = Scale("YlGn", 0.0, 1.0, "accuracy")
    labels = (
        "data of client k\nlast column: what model i made forget (mean)",
        "model of client i\nlast row: $F_k$, mean of other models",
    )

    def maps(matrix: ForgettingMatrix) -> list[HeatMap]:
        return [
            _lost_map(matrix, "forgetting F (boxed: own data)", ("$F_k$", "mean"), labels, lost),
            _map(
                "accuracy after local training",
                matrix,
                matrix.after.to_numpy(),
                matrix.before.to_numpy(),
                None,
                ("before", ""),
                ("data of client k\nlast row: global model before training", ""),
                accuracy,
            ),
        ]

    return _figure(grid, maps, [lost, accuracy], title)


def class_figure(grid: Grid, title: str = "") -> Figure:
    """The figure of `draw_class_heatmaps`."""
    lost = _lost(grid, "accuracy before − after\nred: forgotten, blue: gained")
    labels = ("class\nlast column: mean of classes", "model of client i\nlast row: mean of models")

    def maps(matrix: ForgettingMatrix) -> list[HeatMap]:
        return [_lost_map(matrix, "accuracy lost on each class", ("mean", "mean"), labels, lost)]

    return _figure(grid, maps, [lost], title)


def _lost(grid: Grid, label: str) -> Scale:
    """From blue over white to red, which people who can't tell red from green can tell apart."""
    matrices = [matrix for row in grid.values() for matrix in row.values() if matrix is not None]
    most = max((float(matrix.forgetting.abs().to_numpy().max()) for matrix in matrices), default=0.0)
    most = max(0.1, math.ceil(most * 10 - 1e-6) / 10)  # the next tenth, for round numbers at the bar
    return Scale("RdBu_r", -most, most, label)


def _lost_map(
    matrix: ForgettingMatrix, title: str, names: tuple[str, str], labels: tuple[str, str], scale: Scale
) -> HeatMap:
    cells, beneath = matrix.forgetting.to_numpy(), matrix.of_data.to_numpy()
    beside = np.append(matrix.caused.to_numpy(), matrix.mean)
    return _map(title, matrix, cells, beneath, beside, names, labels, scale)


def _map(
    title: str,
    matrix: ForgettingMatrix,
    cells: Floats,
    beneath: Floats,
    beside: Floats | None,
    names: tuple[str, str],
    labels: tuple[str, str],
    scale: Scale,
) -> HeatMap:
    table = matrix.after
    rows, columns, own = table.index.tolist(), table.columns.tolist(), matrix.is_own.to_numpy()
    return HeatMap(title, rows, columns, cells, own, beneath, beside, names, labels, scale)


def _figure(
    grid: Grid, maps: Callable[[ForgettingMatrix], list[HeatMap]], scales: Sequence[Scale], title: str
) -> Figure:
    rounds = list(next(iter(grid.values())))
    if len(grid) * len(rounds) > _MOST:
        raise ConfigError(
            f"found {len(grid)} runs and {len(rounds)} rounds to draw, which are {len(grid) * len(rounds)} "
            f"matrices; allowed: up to {_MOST} in a figure"
        )
    down = len(grid) >= len(rounds)  # the longer list goes down the page
    height, width = (len(grid), len(rounds)) if down else (len(rounds), len(grid))
    pair = _SIDE if len(scales) == 1 else _SIDE + _TICKS + _NARROW
    top = _TOP if title else 0.0
    page = (
        _LEFT + width * pair + (width - 1) * _BETWEEN + _RIGHT,
        top + height * (_HEADING + _SIDE + _BENEATH) + _FOOT,
    )
    figure = Figure(figsize=page)
    if title:
        figure.text(_LEFT / page[0], 1 - 0.35 / page[1], plain(title, 120), fontsize=13, fontweight="bold")
    cells = list(_in_order(grid, down))
    measured = {divmod(place, width) for place, (*_, matrix) in enumerate(cells) if matrix is not None}
    for place, (label, number, matrix) in enumerate(cells):
        row, column = divmod(place, width)
        x = _LEFT + column * (pair + _BETWEEN)
        y = page[1] - top - (row + 1) * (_HEADING + _SIDE) - row * _BENEATH
        heading = f"{plain(label, int(9 * pair))}, round {number}"
        figure.text(x / page[0], (y + _SIDE + 0.27) / page[1], heading, fontsize=10.5, fontweight="bold")
        if matrix is None:
            figure.text(x / page[0], (y + _SIDE / 2) / page[1], "not measured", fontsize=9, color="0.4")
            continue
        for one in maps(matrix):
            wide = _NARROW if one.beside is None else _SIDE
            axes = figure.add_axes((x / page[0], y / page[1], wide / page[0], _SIDE / page[1]))
            draw_map(axes, one)
            # Once a column and once a row of the page: where there is no map further down, or further left.
            lowest = not any((below, column) in measured for below in range(row + 1, height))
            first = not any((row, left) in measured for left in range(column))
            axes.set_xlabel(one.labels[0] if lowest else "", fontsize=8.5)
            axes.set_ylabel(one.labels[1] if first else "", fontsize=8.5)
            x += wide + _TICKS
    x = _LEFT
    for scale, length in zip(scales, (_SIDE, _NARROW), strict=False):
        draw_scale(figure, scale, (x / page[0], 0.62 / page[1], length / page[0], 0.13 / page[1]))
        x += length + _TICKS
    return figure


def _in_order(grid: Grid, down: bool) -> Iterator[tuple[str, int, ForgettingMatrix | None]]:
    """Row after row of the page."""
    cells = [(label, number, matrix) for label, row in grid.items() for number, matrix in row.items()]
    rounds = list(next(iter(grid.values())))
    return iter(cells if down else sorted(cells, key=lambda cell: rounds.index(cell[1])))
