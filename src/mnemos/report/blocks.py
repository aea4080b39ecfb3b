"""What a report is made of: tables, curves, bars, strips, maps, listings and text, before anything is drawn.

Panels turn runs into blocks. The page, the figures and the exported tables are drawn from blocks alone, so a
panel is written once. Parts of a block know the groups they belong to, by which the page shows and hides
them; parts without a group are always shown.
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
    """A cell of a table: what is shown, and what it is sorted by."""

    text: str
    value: float | str | None = None
    best: bool = False
    spread: float | None = None
    """Standard deviation, of a mean that is also drawn."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    label: str
    kind: Literal["text", "number", "spread"] = "text"
    """`spread`: a mean with its deviation, drawn as a dot in a bar."""
    help: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    cells: tuple[Cell, ...]
    groups: tuple[int, ...] = ()
    choice: int = 0
    """Which of the table's choices it belongs to."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """Something that is shown, with a sentence that says what it is."""

    id: str
    title: str
    text: str
    note: str = ""
    """What to keep in mind, in smaller print."""


@dataclass(frozen=True, kw_only=True)
class Table(Block):
    """Rows and columns; with `choices`, one of several sets of rows at a time (the first is exported)."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    choice: str = ""
    """What is chosen: `reference`."""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Series:
    """A curve with its band."""

    label: str
    x: Floats
    mean: Floats
    std: Floats | None = None
    """None: of one run, where there is no spread."""
    groups: tuple[int, ...] = ()
    style: int = 0
    """Colour, dashes and marker; that of the group, as a rule."""
    owners: tuple[int, ...] = ()
    """The group of each point, where a curve goes through several groups."""


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
    """Every point is marked: there are few, and each counts."""


@dataclass(frozen=True)
class Stack:
    """The same part of all bars."""

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
    """Or the group of each bar."""
    note: str = ""
    unit: Literal["", "bytes", "seconds"] = ""


@dataclass(frozen=True, kw_only=True)
class Bars(Block):
    """Stacked bars, one view at a time."""

    x: str
    views: tuple[BarView, ...]


@dataclass(frozen=True)
class Strip:
    """A row that is of one kind for a while and then of another."""

    name: str
    ends: tuple[int, ...]
    """Where each stretch ends; the first begins at 1."""
    kinds: tuple[int, ...]
    """What each stretch is of."""


@dataclass(frozen=True)
class StripView:
    """Strips that are read beside each other."""

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
    """A matrix at one moment: of accuracies or, for a map that shows drops, of differences between them."""

    label: str
    rows: tuple[int | str, ...]
    columns: tuple[int | str, ...]
    values: Floats
    before: Floats | None = None
    """Of each column, before what the rows did to it."""
    owners: tuple[int, ...] = ()
    """The group of each row, where rows are groups."""

    @property
    def lost(self) -> Floats:
        """before − values."""
        assert self.before is not None
        lost: Floats = self.before - self.values
        return lost

    @property
    def own(self) -> NDArray[np.bool_]:
        """Where a row meets itself; nothing is compared where rows are groups."""
        if self.owners or self.before is None:
            return np.zeros(self.values.shape, bool)
        same: NDArray[np.bool_] = np.equal.outer(np.array(self.rows), np.array(self.columns))
        return same


@dataclass(frozen=True)
class Map:
    """What is drawn of a frame."""

    title: str
    shows: Literal["lost", "value", "drop"]
    """before − values with the means of others beneath and beside; the values, with `before` beneath; or
    values that are differences already."""
    rows: str
    columns: str
    scale: str
    """What the colours mean."""
    most: float = 1.0
    """Colours go from 0 to it; of differences, from minus it."""


@dataclass(frozen=True)
class Item:
    """Frames that follow each other."""

    label: str
    frames: tuple[Frame, ...]
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HeatMaps(Block):
    """Matrices as colours: one item at a time, and a slider over its frames."""

    choice: str
    maps: tuple[Map, ...]
    items: tuple[Item, ...]
    frame: str = "round"


@dataclass(frozen=True)
class Listing:
    """Lines to copy, with facts beside them."""

    label: str
    parts: tuple[tuple[str, str], ...]
    """Heading and text."""
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
    """`42.1 ± 0.3 %` of the values of several seeds, with the number that did not converge."""
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
    """A number's text with the sign of mathematics."""
    return text.replace("-", "−")


def rate(value: float) -> str:
    """A learning rate, short: `0.03`, `1e-05`."""
    return f"{value:g}"
