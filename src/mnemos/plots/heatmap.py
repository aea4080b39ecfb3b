"""Drawing a matrix as a heat-map, with numbers if there is room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PatchCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from mnemos.data.partition import Floats

_NUMBERED = 12
"""With more rows or columns, cells have no numbers."""
_NAMED = 20
"""With more rows or columns, not all are named."""


@dataclass(frozen=True)
class Scale:
    """The colours of values, in all maps of a figure."""

    colours: str
    least: float
    most: float
    label: str

    @property
    def norm(self) -> Normalize:
        """Matplotlib's norm from `least` to `most`."""
        return Normalize(self.least, self.most)

    @property
    def mappable(self) -> ScalarMappable:
        """Matplotlib's mapping from values to colours."""
        return ScalarMappable(self.norm, self.colours)


@dataclass(frozen=True)
class HeatMap:
    """A matrix, and optionally a separate row beneath it and a separate column to its right."""

    title: str
    rows: Sequence[object]
    columns: Sequence[object]
    cells: Floats
    own: NDArray[np.bool_]
    """Whether a cell has a box."""
    beneath: Floats | None
    """The separate row."""
    beside: Floats | None
    """The separate column, with a last value for the corner where it meets the separate row."""
    names: tuple[str, str]
    """The names of the separate row and of the separate column."""
    labels: tuple[str, str]
    """The labels of the x axis and of the y axis."""
    scale: Scale


def draw_scale(figure: Figure, scale: Scale, bounds: tuple[float, float, float, float]) -> None:
    """Draw a colour bar; `bounds` are left, bottom, width and height as shares of the figure."""
    axes = figure.add_axes(bounds)
    ticks = np.linspace(scale.least, scale.most, 5).tolist()
    bar = figure.colorbar(scale.mappable, cax=axes, orientation="horizontal")
    bar.set_ticks(ticks, labels=[f"{tick:.2g}".replace("-", "−") for tick in ticks])
    bar.set_label(scale.label, fontsize=8.5)
    bar.ax.tick_params(labelsize=7.5)
    bar.outline.set_visible(False)


def draw_map(axes: Axes, heatmap: HeatMap) -> None:
    """Draw a heat-map with its first row at the top, as in a table."""
    rows, columns = heatmap.cells.shape
    x, y = np.arange(columns + 1.0), np.arange(rows + 1.0)
    right, below = _apart(columns), _apart(rows)
    parts = [(x, y, heatmap.cells)]
    if heatmap.beneath is not None:
        parts.append((x, below, heatmap.beneath[None]))
    if heatmap.beside is not None:
        parts += [(right, y, heatmap.beside[:-1, None]), (right, below, heatmap.beside[-1:, None])]
    numbered = max(rows, columns) <= _NUMBERED
    for across, along, values in parts:
        axes.pcolormesh(
            across,
            along,
            values,
            norm=heatmap.scale.norm,
            cmap=heatmap.scale.colours,
            edgecolors="white" if numbered else "face",
            linewidth=0.6 if numbered else 0.1,
        )
        if numbered:
            size = min(10.0, max(6.2, 72 / max(rows, columns)))
            _write(axes, _middles(across), _middles(along), values, heatmap.scale, size)
    _box(axes, heatmap.own)
    axes.set(
        xlim=(0, columns if heatmap.beside is None else right[1]),
        ylim=(rows if heatmap.beneath is None else below[1], 0),
    )
    _name(axes, heatmap, right.mean(), below.mean())
    axes.set_title(heatmap.title, fontsize=9, loc="left", pad=5)


def _apart(count: int) -> Floats:
    """The edges of the separate row or column beside `count` others; it is thicker if they are many."""
    return count + np.array([0.35, 1.35]) * max(1.0, count / 10)


def _middles(edges: Floats) -> Floats:
    return (edges[1:] + edges[:-1]) / 2


def _write(axes: Axes, x: Floats, y: Floats, values: Floats, scale: Scale, size: float) -> None:
    """Write numbers into cells, in black or white; `x` and `y` are the cells' middles."""
    light = scale.mappable.to_rgba(values)[..., :3] @ np.array([0.299, 0.587, 0.114])
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):  # with a single client, there is no mean over other clients
            colour = "white" if light[row, column] < 0.5 else "black"
            text = _number(float(value))
            axes.text(
                float(x[column]), float(y[row]), text, ha="center", va="center", fontsize=size, color=colour
            )


def _number(value: float) -> str:
    """The text of a number with two decimals, as short as possible: `.31`, `−.07`, `0` or `1`."""
    text = f"{abs(value):.2f}"
    short = {"0.00": "0", "1.00": "1"}.get(text, text.removeprefix("0"))
    return f"−{short}" if value < 0 and short != "0" else short


def _box(axes: Axes, own: NDArray[np.bool_]) -> None:
    boxes = [Rectangle((column, row), 1, 1) for row, column in np.argwhere(own)]
    width = 1.2 if max(own.shape) <= _NUMBERED else 0.5
    axes.add_collection(
        PatchCollection(boxes, facecolor="none", edgecolor="black", linewidth=width, clip_on=False)
    )


def _name(axes: Axes, heatmap: HeatMap, right: float, below: float) -> None:
    """Name the rows and columns; `right` and `below` are the middles of the separate column and row."""
    ticks, names = _some(heatmap.rows)
    if heatmap.beneath is not None:
        ticks, names = [*ticks, below], [*names, heatmap.names[0]]
    axes.set_yticks(ticks, names)
    ticks, names = _some(heatmap.columns)
    upright = len(names) <= _NUMBERED and max(map(len, names)) <= 2
    turns = [0 if upright else 90] * len(names)
    if heatmap.beside is not None:
        ticks, names, turns = [*ticks, right], [*names, heatmap.names[1]], [*turns, 0]
    axes.set_xticks(ticks, names)
    for label, turn in zip(axes.get_xticklabels(), turns, strict=True):
        label.set_rotation(turn)
    axes.tick_params(labelsize=7.5, length=0, pad=2)
    axes.spines[:].set_visible(False)


def _some(names: Sequence[object]) -> tuple[list[float], list[str]]:
    """Where to draw names, and the names that there is room for."""
    step = -(-len(names) // _NAMED)
    return [index + 0.5 for index in range(0, len(names), step)], [str(name) for name in names[::step]]
