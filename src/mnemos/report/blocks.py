"""The blocks of a report: tables, curves, bars, strips, maps, listings and text, as data.

Panels turn runs into blocks. The page, the figures and the exported tables are drawn from blocks, so a panel
is written once for all three. Parts of a block name the groups of runs that they belong to; the page shows
and hides them with their groups, and always shows parts without a group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mnemos.data.partition import Floats
from mnemos.report.average import mean_of, std_of


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    """What is shown."""
    value: float | str | None = None
    """What the column is sorted by; None is sorted last."""
    best: bool = False
    """Whether the cell is marked as the best of its column."""
    spread: float | None = None
    """The standard deviation of a mean that is also drawn."""
    apart: bool = True
    """Whether a test tells the best apart from the others; if not, it isn't bold in a paper."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    label: str
    kind: Literal["text", "number", "spread"] = "text"
    """`spread` is a mean with its standard deviation, drawn as a dot in a bar."""
    help: str = ""
    state: bool = False
    """Whether the column is about the state of runs, which papers leave out."""


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    cells: tuple[Cell, ...]
    groups: tuple[int, ...] = ()
    choice: int = 0
    """The index of the table's choice that the row belongs to."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A part of a report with a title and an explanation."""

    id: str
    title: str
    text: str
    """What is shown."""
    note: str = ""
    """What to keep in mind, in smaller print."""


@dataclass(frozen=True, kw_only=True)
class Table(Block):
    """A table. With `choices`, the page shows the rows of one choice at a time; the first is exported."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    choice: str = ""
    """What the reader chooses, such as `reference`."""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Series:
    """A curve with a band of one standard deviation."""

    label: str
    x: Floats
    mean: Floats
    std: Floats | None = None
    """None for a curve of a single run."""
    groups: tuple[int, ...] = ()
    style: int = 0
    """Which colour, dashes and marker to use; mostly the group's number."""
    owners: tuple[int, ...] = ()
    """The group of each point, if a curve goes through several groups."""


@dataclass(frozen=True)
class View:
    """Curves that share an axis."""

    label: str
    y: str
    series: tuple[Series, ...]
    percent: bool = False


@dataclass(frozen=True, kw_only=True)
class Lines(Block):
    """Curves, one view at a time."""

    x: str
    views: tuple[View, ...]
    log: bool = False
    marked: bool = False
    """Whether every point has a marker, because there are few."""


@dataclass(frozen=True)
class Stack:
    """One part of all stacked bars: a value for each bar."""

    label: str
    values: Floats


@dataclass(frozen=True)
class BarView:
    """Bars that share an axis."""

    label: str
    y: str
    categories: tuple[str, ...]
    stacks: tuple[Stack, ...]
    groups: tuple[int, ...] = ()
    """The groups that all bars belong to."""
    owners: tuple[int, ...] = ()
    """The group of each bar, if bars belong to different groups."""
    note: str = ""
    unit: Literal["", "bytes", "seconds"] = ""


@dataclass(frozen=True, kw_only=True)
class Bars(Block):
    """Stacked bars, one view at a time."""

    x: str
    views: tuple[BarView, ...]


@dataclass(frozen=True)
class Strip:
    """A row of stretches, each of one kind."""

    name: str
    ends: tuple[int, ...]
    """Where each stretch ends; the first begins at 1."""
    kinds: tuple[int, ...]
    """The kind of each stretch, as an index into the view's kinds."""


@dataclass(frozen=True)
class StripView:
    """Strips that share an axis."""

    label: str
    kinds: tuple[str, ...]
    strips: tuple[Strip, ...]
    groups: tuple[int, ...] = ()
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Strips(Block):
    """Rows cut into coloured stretches, one view at a time."""

    x: str
    y: str
    views: tuple[StripView, ...]


@dataclass(frozen=True)
class Frame:
    """A matrix at one moment: of accuracies, or of their differences for a map that shows `drop`."""

    label: str
    rows: tuple[int | str, ...]
    columns: tuple[int | str, ...]
    values: Floats
    before: Floats | None = None
    """The accuracy on each column's data before the training of the rows' models."""
    owners: tuple[int, ...] = ()
    """The group of each row, if rows are groups."""

    @property
    def lost(self) -> Floats:
        """The accuracy that was lost: before − values."""
        assert self.before is not None
        lost: Floats = self.before - self.values
        return lost

    @property
    def own(self) -> NDArray[np.bool_]:
        """Whether an entry is a client's model on the client's own data; never if rows are groups."""
        if self.owners or self.before is None:
            return np.zeros(self.values.shape, bool)
        same: NDArray[np.bool_] = np.equal.outer(np.array(self.rows), np.array(self.columns))
        return same


@dataclass(frozen=True)
class Map:
    """How a frame is drawn."""

    title: str
    shows: Literal["lost", "value", "drop"]
    """`lost`: before − values, with the means over other clients beneath and beside. `value`: the values,
    with `before` beneath. `drop`: the values, which are differences already."""
    rows: str
    columns: str
    scale: str
    """What the colours mean."""
    most: float = 1.0
    """The value of the last colour; the first is 0, or −`most` for differences."""


@dataclass(frozen=True)
class Item:
    """Frames that follow each other."""

    label: str
    frames: tuple[Frame, ...]
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HeatMaps(Block):
    """Heat-maps of matrices: one item at a time, with a slider over its frames."""

    choice: str
    maps: tuple[Map, ...]
    items: tuple[Item, ...]
    frame: str = "round"


@dataclass(frozen=True)
class Listing:
    """Lines of text to copy, with facts beside them."""

    label: str
    parts: tuple[tuple[str, str], ...]
    """The heading and text of each part."""
    facts: tuple[tuple[str, str], ...] = ()
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Listings(Block):
    """Listings, one at a time."""

    choice: str
    items: tuple[Listing, ...]


@dataclass(frozen=True, kw_only=True)
class Text(Block):
    """Sentences."""

    sentences: tuple[str, ...] = field(default_factory=tuple)


def dash(value: float | None = None) -> Cell:
    """A cell without a number; it is sorted last."""
    return Cell("–", value)


def whole(value: int) -> Cell:
    """A cell with a whole number."""
    return Cell(f"{value:,}", value)


def spread(values: Sequence[float], *, diverged: int = 0, percent: bool = True, best: bool = False) -> Cell:
    """A cell such as `42.1 ± 0.3 % (1 NC)`, from the values of several seeds.

    `diverged` is the number of seeds that did not converge.
    """
    values = [value for value in values if math.isfinite(value)]
    if not values:
        return Cell("NC" if diverged else "–", None)
    mean, std = mean_of(values), std_of(values)
    scale, digits, unit = (100, 1, " %") if percent else (1, 3, "")
    text = minus(f"{scale * mean:z.{digits}f}")
    text += "" if std is None else f" ± {scale * std:.{digits}f}"
    lost = f" ({diverged} NC)" if diverged else ""
    return Cell(f"{text}{unit}{lost}", mean, best, std)


def minus(text: str) -> str:
    """The text of a number with a typographic minus sign."""
    return text.replace("-", "−")


def rate(value: float) -> str:
    """The text of a learning rate, such as `0.03` or `1e-05`."""
    return f"{value:g}"
