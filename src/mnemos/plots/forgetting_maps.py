"""Figures with heat-maps of the forgetting matrices of runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from mnemos.errors import ConfigError
from mnemos.plots.heatmap import HeatMap, Scale, draw_map, draw_scale
from mnemos.plots.style import Picture, plain, save
from mnemos.runs.forgetting_matrix import ForgettingMatrix, measured_rounds, read_matrix
from mnemos.runs.run import Run

_F_SCALE = "forgetting F = accuracy before − after\nred: forgotten, blue: gained"

Grid = Mapping[str, Mapping[int, ForgettingMatrix | None]]
"""Matrices by label and round, with the same rounds for all labels; None if a round was not measured."""

# Lengths of the page, in inches.
_SIDE, _NARROW = 3.0, 2.64
"""Height of a map, which is also its width with a last column of means; width without it. Cells are about
equally wide in both."""
_LEFT, _RIGHT, _TICKS, _BETWEEN = 0.9, 0.3, 0.6, 0.75
"""Space left of the first map and right of the last; between the maps of a pair; between pairs."""
_TOP, _HEADING, _BENEATH, _FOOT = 0.45, 0.55, 0.4, 1.25
"""Space for the title; above a row of maps; beneath it; for colour bars and the axes' labels above them."""

_MOST = 60
"""The most matrices (runs × rounds) in a figure; more would be an image too large to open."""


def draw_heatmaps(runs: Mapping[str, Run], rounds: Sequence[int], path: Path, title: str = "") -> Path:
    """Draw two maps for each run and round: what models forgot of each client's data, and their accuracy.

    Colours mean the same in all maps. A round that a run didn't measure has an empty space.
    """
    return save(forgetting_figure(read_grid(runs, rounds), title), path)


def draw_side_by_side(runs: Mapping[str, Run], rounds: Sequence[int], path: Path, title: str = "") -> Path:
    """Draw what was forgotten of each client's data: a map for each run and round, runs side by side."""
    return save(side_by_side_figure(read_grid(runs, rounds), title), path)


def draw_class_heatmaps(runs: Mapping[str, Run], rounds: Sequence[int], path: Path, title: str = "") -> Path:
    """Draw a map for each run and round: the accuracy that each client's model lost on each class."""
    return save(class_figure(read_grid(runs, rounds, classes=True), title), path)


def read_grid(runs: Mapping[str, Run], rounds: Sequence[int], *, classes: bool = False) -> Grid:
    """Read the matrices of a figure; each run's metrics are read once."""
    grid: dict[str, dict[int, ForgettingMatrix | None]] = {}
    for label, run in runs.items():
        metrics = run.metrics
        grid[label] = dict.fromkeys(rounds)
        for round in set(rounds) & set(measured_rounds(metrics)):
            grid[label][round] = read_matrix(metrics, round, classes=classes, source=run.path)
    return grid


def forgetting_figure(grid: Grid, title: str = "") -> Picture:
    """The figure of `draw_heatmaps`."""
    lost = _lost(grid, _F_SCALE)
    accuracy = Scale("YlGn", 0.0, 1.0, "accuracy")

    def maps(matrix: ForgettingMatrix) -> list[HeatMap]:
        return [
            _f_map(matrix, lost),
            HeatMap(
                title="accuracy after local training",
                rows=matrix.after.index.tolist(),
                columns=matrix.after.columns.tolist(),
                cells=matrix.after.to_numpy(),
                own=matrix.is_own.to_numpy(),
                beneath=matrix.before.to_numpy(),
                beside=None,
                names=("before", ""),
                labels=("data of client k\nlast row: global model before training", ""),
                scale=accuracy,
            ),
        ]

    return _figure(grid, maps, [lost, accuracy], title)


def side_by_side_figure(grid: Grid, title: str = "") -> Picture:
    """The figure of `draw_side_by_side`."""
    lost = _lost(grid, _F_SCALE)
    return _figure(grid, lambda matrix: [_f_map(matrix, lost)], [lost], title, down=False)


def class_figure(grid: Grid, title: str = "") -> Picture:
    """The figure of `draw_class_heatmaps`."""
    lost = _lost(grid, "accuracy before − after\nred: forgotten, blue: gained")
    labels = ("class\nlast column: mean of classes", "model of client i\nlast row: mean of models")

    def maps(matrix: ForgettingMatrix) -> list[HeatMap]:
        return [_lost_map(matrix, "accuracy lost on each class", ("mean", "mean"), labels, lost)]

    return _figure(grid, maps, [lost], title)


def _lost(grid: Grid, label: str) -> Scale:
    """The scale of all maps of lost accuracy: from blue (gained) over white to red (forgotten).

    People who can't tell red from green can tell these colours apart.
    """
    matrices = [matrix for row in grid.values() for matrix in row.values() if matrix is not None]
    most = max((float(matrix.forgetting.abs().to_numpy().max()) for matrix in matrices), default=0.0)
    most = max(
        0.1, math.ceil(most * 10 - 1e-6) / 10
    )  # rounded up to a tenth, for round numbers at the colour bar
    return Scale("RdBu_r", -most, most, label)


def _f_map(matrix: ForgettingMatrix, scale: Scale) -> HeatMap:
    """The map of forgetting F: rows are clients' models, columns clients' data."""
    labels = (
        "data of client k\nlast column: what model i made forget (mean)",
        "model of client i\nlast row: $F_k$, mean of other models",
    )
    return _lost_map(matrix, "forgetting F (boxed: own data)", ("$F_k$", "mean"), labels, scale)


def _lost_map(
    matrix: ForgettingMatrix, title: str, names: tuple[str, str], labels: tuple[str, str], scale: Scale
) -> HeatMap:
    """The map of lost accuracy, with its means over models beneath and over data beside."""
    return HeatMap(
        title=title,
        rows=matrix.after.index.tolist(),
        columns=matrix.after.columns.tolist(),
        cells=matrix.forgetting.to_numpy(),
        own=matrix.is_own.to_numpy(),
        beneath=matrix.of_data.to_numpy(),
        beside=np.append(matrix.caused.to_numpy(), matrix.mean),
        names=names,
        labels=labels,
        scale=scale,
    )


def _figure(
    grid: Grid,
    maps: Callable[[ForgettingMatrix], list[HeatMap]],
    scales: Sequence[Scale],
    title: str,
    *,
    down: bool | None = None,
) -> Picture:
    """A figure with the maps of every matrix, which `maps` makes, and with colour bars for `scales`.

    With `down` each label has a row of the figure, with `down=False` a column; by default the longer of the
    two lists, labels or rounds, goes down the page.
    """
    rounds = list(next(iter(grid.values())))
    if len(grid) * len(rounds) > _MOST:
        raise ConfigError(
            f"found {len(grid)} runs and {len(rounds)} rounds to draw, which are {len(grid) * len(rounds)} "
            f"matrices; allowed: up to {_MOST} in a figure"
        )
    if down is None:
        down = len(grid) >= len(rounds)
    height, width = (len(grid), len(rounds)) if down else (len(rounds), len(grid))
    pair = _SIDE if len(scales) == 1 else _SIDE + _TICKS + _NARROW
    top = _TOP if title else 0.0
    page = (
        _LEFT + width * pair + (width - 1) * _BETWEEN + _RIGHT,
        top + height * (_HEADING + _SIDE + _BENEATH) + _FOOT,
    )
    figure = Picture(figsize=page)
    if title:
        figure.text(_LEFT / page[0], 1 - 0.35 / page[1], plain(title, 120), fontsize=13, fontweight="bold")
    cells = list(_in_order(grid, down))
    measured = {divmod(index, width) for index, (*_, matrix) in enumerate(cells) if matrix is not None}
    lowest = {column: row for row, column in sorted(measured)}
    first = dict(sorted(measured, reverse=True))
    for index, (label, round, matrix) in enumerate(cells):
        row, column = divmod(index, width)
        x = _LEFT + column * (pair + _BETWEEN)
        y = page[1] - top - (row + 1) * (_HEADING + _SIDE) - row * _BENEATH
        heading = f"{plain(label, int(9 * pair))}, round {round}"
        figure.text(x / page[0], (y + _SIDE + 0.27) / page[1], heading, fontsize=10.5, fontweight="bold")
        if matrix is None:
            figure.text(x / page[0], (y + _SIDE / 2) / page[1], "not measured", fontsize=9, color="0.4")
            continue
        for heatmap in maps(matrix):
            wide = _NARROW if heatmap.beside is None else _SIDE
            axes = figure.add_axes((x / page[0], y / page[1], wide / page[0], _SIDE / page[1]))
            draw_map(axes, heatmap)
            # The lowest map of a column and the first of a row have the labels of the axes.
            axes.set_xlabel(heatmap.labels[0] if lowest[column] == row else "", fontsize=8.5)
            axes.set_ylabel(heatmap.labels[1] if first[row] == column else "", fontsize=8.5)
            x += wide + _TICKS
    _draw_scales(figure, scales, page)
    return figure


def _draw_scales(figure: Figure, scales: Sequence[Scale], page: tuple[float, float]) -> None:
    """Draw the colour bars at the bottom; `page` is the figure's width and height in inches."""
    x = _LEFT
    for scale, length in zip(scales, (_SIDE, _NARROW), strict=False):
        draw_scale(figure, scale, (x / page[0], 0.62 / page[1], length / page[0], 0.13 / page[1]))
        x += length + _TICKS


def _in_order(grid: Grid, down: bool) -> Iterator[tuple[str, int, ForgettingMatrix | None]]:
    """The matrices of the grid, row after row of the figure; `down` if labels go down it, else rounds do."""
    cells = [(label, round, matrix) for label, row in grid.items() for round, matrix in row.items()]
    rounds = list(next(iter(grid.values())))
    return iter(cells if down else sorted(cells, key=lambda cell: rounds.index(cell[1])))
