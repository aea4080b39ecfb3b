"""A matrix as colours, with numbers where there is room."""

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
"""With more, not every row or column is named."""


@dataclass(frozen=True)
class Scale:
    """What colours mean, in all maps of a figure."""

    colours: str
    least: float
    most: float
    label: str

    @property
    def norm(self) -> Normalize:
        """Where a value lies among the colours."""
        return Normalize(self.least, self.most)

    @property
    def mappable(self) -> ScalarMappable:
        """Values to colours."""
        return ScalarMappable(self.norm, self.colours)


@dataclass(frozen=True)
class HeatMap:
    """A matrix with, perhaps, a row set apart beneath it and a column to the right."""

    title: str
    rows: Sequence[object]
    columns: Sequence[object]
    cells: Floats
    own: NDArray[np.bool_]
    """Cells with a box."""
    beneath: Floats | None
    beside: Floats | None
    """One longer than the column: the last is the corner's."""
    names: tuple[str, str]
    """Of the row and of the column."""
    labels: tuple[str, str]
    """Of the axes x and y."""
    scale: Scale


def draw_scale(figure: Figure, scale: Scale, place: tuple[float, float, float, float]) -> None:
    """A colour bar at a place of the figure."""
    axes = figure.add_axes(place)
    ticks = np.linspace(scale.least, scale.most, 5).tolist()
    bar = figure.colorbar(scale.mappable, cax=axes, orientation="horizontal")
    bar.set_ticks(ticks, labels=[f"{tick:.2g}".replace("-", "−") for tick in ticks])
    bar.set_label(scale.label, fontsize=8.5)
    bar.ax.tick_params(labelsize=7.5)
    bar.outline.set_visible(False)


def draw_map(axes: Axes, one: HeatMap) -> None:
    """Cells with the origin at the upper left, as in a table."""
    rows, columns = one.cells.shape
    x, y = np.arange(columns + 1.0), np.arange(rows + 1.0)
    right, below = _apart(columns), _apart(rows)
    parts = [(x, y, one.cells)]
    if one.beneath is not None:
        parts.append((x, below, one.beneath[None]))
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
    _box(axes, one.own)
    axes.set(
        xlim=(0, columns if one.beside is None else right[1]),
        ylim=(rows if one.beneath is None else below[1], 0),
    )
    _name(axes, one, right.mean(), below.mean())
    axes.set_title(one.title, fontsize=9, loc="left", pad=5)


def _apart(count: int) -> Floats:
    """The edges of a row or column set apart from `count` others; thicker where they are thin."""
    return count + np.array([0.35, 1.35]) * max(1.0, count / 10)


def _middles(edges: Floats) -> Floats:
    return (edges[1:] + edges[:-1]) / 2


def _write(axes: Axes, x: Floats, y: Floats, values: Floats, scale: Scale, size: float) -> None:
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


def _name(axes: Axes, one: HeatMap, right: float, below: float) -> None:
    """Which clients the rows and columns are of."""
    places, names = _some(one.rows)
    if one.beneath is not None:
        places, names = [*places, below], [*names, one.names[0]]
    axes.set_yticks(places, names)
    places, names = _some(one.columns)
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
