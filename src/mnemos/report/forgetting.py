"""Who forgot what: heat-maps of the forgetting of a round."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PatchCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from mnemos.data.partition import Floats
from mnemos.errors import ConfigError
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

_NUMBERED = 12
"""With more rows or columns, cells have no numbers."""
_NAMED = 20
"""With more, not every row or column is named."""
_MOST = 60
"""Runs × rounds on a page; more would be a picture too large to open."""


@dataclass(frozen=True)
class _Scale:
    """What colours mean, in all maps of a figure."""

    colours: str
    least: float
    most: float
    label: str

    @property
    def norm(self) -> Normalize:
        return Normalize(self.least, self.most)

    @property
    def mappable(self) -> ScalarMappable:
        return ScalarMappable(self.norm, self.colours)


@dataclass(frozen=True)
class _Map:
    """A matrix with a row set apart beneath it and, perhaps, a column to the right."""

    title: str
    matrix: ForgettingMatrix
    cells: Floats
    beneath: Floats
    beside: Floats | None
    """One longer than the column: the last is the corner's."""
    names: tuple[str, str]
    """Of the row and of the column."""
    labels: tuple[str, str]
    """Of the axes x and y."""
    scale: _Scale

    @property
    def width(self) -> float:
        return _NARROW if self.beside is None else _SIDE


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
    accuracy = _Scale("YlGn", 0.0, 1.0, "accuracy")
    labels = (
        "data of client k\nlast column: what model i made forget (mean)",
        "model of client i\nlast row: $F_k$, mean of other models",
    )

    def maps(matrix: ForgettingMatrix) -> list[_Map]:
        return [
            _lost_map(matrix, "forgetting F (boxed: own data)", ("$F_k$", "mean"), labels, lost),
            _Map(
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

    def maps(matrix: ForgettingMatrix) -> list[_Map]:
        return [_lost_map(matrix, "accuracy lost on each class", ("mean", "mean"), labels, lost)]

    return _figure(grid, maps, [lost], title)


def _lost(grid: Grid, label: str) -> _Scale:
    """From blue over white to red, which people who can't tell red from green can tell apart."""
    matrices = [matrix for row in grid.values() for matrix in row.values() if matrix is not None]
    most = max((float(matrix.forgetting.abs().to_numpy().max()) for matrix in matrices), default=0.0)
    most = max(0.1, math.ceil(most * 10 - 1e-6) / 10)  # the next tenth, for round numbers at the bar
    return _Scale("RdBu_r", -most, most, label)


def _lost_map(
    matrix: ForgettingMatrix, title: str, names: tuple[str, str], labels: tuple[str, str], scale: _Scale
) -> _Map:
    cells, beneath = matrix.forgetting.to_numpy(), matrix.of_data.to_numpy()
    beside = np.append(matrix.caused.to_numpy(), matrix.mean)
    return _Map(title, matrix, cells, beneath, beside, names, labels, scale)


def _figure(
    grid: Grid, maps: Callable[[ForgettingMatrix], list[_Map]], scales: Sequence[_Scale], title: str
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
    for place, (label, number, matrix) in enumerate(_in_order(grid, down)):
        row, column = divmod(place, width)
        x = _LEFT + column * (pair + _BETWEEN)
        y = page[1] - top - (row + 1) * (_HEADING + _SIDE) - row * _BENEATH
        heading = f"{plain(label, int(9 * pair))}, round {number}"
        figure.text(x / page[0], (y + _SIDE + 0.27) / page[1], heading, fontsize=10.5, fontweight="bold")
        if matrix is None:
            figure.text(x / page[0], (y + _SIDE / 2) / page[1], "not measured", fontsize=9, color="0.4")
            continue
        for one in maps(matrix):
            axes = figure.add_axes((x / page[0], y / page[1], one.width / page[0], _SIDE / page[1]))
            _draw(axes, one)
            axes.set_xlabel(one.labels[0] if row == height - 1 else "", fontsize=8.5)
            axes.set_ylabel(one.labels[1] if column == 0 else "", fontsize=8.5)
            x += one.width + _TICKS
    _bars(figure, scales, page)
    return figure


def _in_order(grid: Grid, down: bool) -> Iterator[tuple[str, int, ForgettingMatrix | None]]:
    """Row after row of the page."""
    cells = [(label, number, matrix) for label, row in grid.items() for number, matrix in row.items()]
    rounds = list(next(iter(grid.values())))
    return iter(cells if down else sorted(cells, key=lambda cell: rounds.index(cell[1])))


def _bars(figure: Figure, scales: Sequence[_Scale], page: tuple[float, float]) -> None:
    """The colour bars at the foot of the page, beneath the maps of the first pair."""
    x = _LEFT
    for scale, length in zip(scales, (_SIDE, _NARROW), strict=False):
        axes = figure.add_axes((x / page[0], 0.62 / page[1], length / page[0], 0.13 / page[1]))
        ticks = np.linspace(scale.least, scale.most, 5).tolist()
        bar = figure.colorbar(scale.mappable, cax=axes, orientation="horizontal")
        bar.set_ticks(ticks, labels=[f"{tick:.2g}".replace("-", "−") for tick in ticks])
        bar.set_label(scale.label, fontsize=8.5)
        bar.ax.tick_params(labelsize=7.5)
        bar.outline.set_visible(False)
        x += length + _TICKS


def _draw(axes: Axes, one: _Map) -> None:
    """Cells with the origin at the upper left, as in a table."""
    rows, columns = one.cells.shape
    x, y = np.arange(columns + 1.0), np.arange(rows + 1.0)
    right, below = _apart(columns), _apart(rows)
    parts = [(x, y, one.cells), (x, below, one.beneath[None])]
    if one.beside is not None:
        parts += [(right, y, one.beside[:-1, None]), (right, below, one.beside[-1:, None])]
    numbered = max(rows, columns) <= _NUMBERED
    for across, along, values in parts:
        axes.pcolormesh(
            across,
            along,
            values,
            norm=one.scale.norm,
            cmap=one.scale.colours,
            edgecolors="white" if numbered else "face",
            linewidth=0.6 if numbered else 0.1,
        )
        if numbered:
            size = min(10.0, max(6.2, 72 / max(rows, columns)))
            _write(axes, _middles(across), _middles(along), values, one.scale, size)
    _box(axes, one.matrix.is_own.to_numpy())
    axes.set(xlim=(0, columns if one.beside is None else right[1]), ylim=(below[1], 0))
    _name(axes, one, right.mean(), below.mean())
    axes.set_title(one.title, fontsize=9, loc="left", pad=5)


def _apart(count: int) -> Floats:
    """The edges of a row or column set apart from `count` others; thicker where they are thin."""
    return count + np.array([0.35, 1.35]) * max(1.0, count / 10)


def _middles(edges: Floats) -> Floats:
    return (edges[1:] + edges[:-1]) / 2


def _write(axes: Axes, x: Floats, y: Floats, values: Floats, scale: _Scale, size: float) -> None:
    light = scale.mappable.to_rgba(values)[..., :3] @ np.array([0.299, 0.587, 0.114])
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):  # there is no mean over others in a cohort of one
            colour = "white" if light[row, column] < 0.5 else "black"
            text = _number(float(value))
            axes.text(
                float(x[column]), float(y[row]), text, ha="center", va="center", fontsize=size, color=colour
            )


def _number(value: float) -> str:
    """`.31`, `−.07`, `0` or `1`: two decimals, as short as they can be."""
    text = f"{abs(value):.2f}"
    short = {"0.00": "0", "1.00": "1"}.get(text, text.removeprefix("0"))
    return f"−{short}" if value < 0 and short != "0" else short


def _box(axes: Axes, own: NDArray[np.bool_]) -> None:
    boxes = [Rectangle((column, row), 1, 1) for row, column in np.argwhere(own)]
    width = 1.2 if max(own.shape) <= _NUMBERED else 0.5
    axes.add_collection(
        PatchCollection(boxes, facecolor="none", edgecolor="black", linewidth=width, clip_on=False)
    )


def _name(axes: Axes, one: _Map, right: float, below: float) -> None:
    """Which clients the rows and columns are of."""
    table = one.matrix.after
    places, names = _some(table.index.tolist())
    axes.set_yticks([*places, below], [*names, one.names[0]])
    places, names = _some(table.columns.tolist())
    upright = len(names) <= _NUMBERED and max(map(len, names)) <= 2
    turns = [0 if upright else 90] * len(names)
    if one.beside is not None:
        places, names, turns = [*places, right], [*names, one.names[1]], [*turns, 0]
    axes.set_xticks(places, names)
    for label, turn in zip(axes.get_xticklabels(), turns, strict=True):
        label.set_rotation(turn)
    axes.tick_params(labelsize=7.5, length=0, pad=2)
    axes.spines[:].set_visible(False)


def _some(names: Sequence[object]) -> tuple[list[float], list[str]]:
    """The names there is room for, and where they stand."""
    step = -(-len(names) // _NAMED)
    return [place + 0.5 for place in range(0, len(names), step)], [str(name) for name in names[::step]]
