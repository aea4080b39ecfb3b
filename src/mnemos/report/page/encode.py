"""Encoding blocks as plain JSON, with arrays of numbers as base64.

A page of 200 runs with 1,000 rounds must be small enough to send by mail and to open quickly. Curves are
thinned only if all of them together have more numbers than `_POINTS`, heat-maps only if they have more than
`_CELLS`; the block's note then says so.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from functools import singledispatchmethod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from mnemos.report.blocks import (
    Bars,
    Block,
    Cell,
    Frame,
    HeatMaps,
    Item,
    Lines,
    Listings,
    Series,
    Strips,
    Table,
    Text,
)

_POINTS = 1_400_000
"""The most numbers in all curves together, of four bytes each."""
_CELLS = 4_500_000
"""The most numbers in all heat-maps together, of two bytes each; names of rows and columns count too."""
_SHORT = 500
"""A curve with at most this many points is never thinned."""

T = TypeVar("T")


class BlockEncoder:
    """Encodes the blocks of a report, which together must not make the page too large."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        curves = [
            series
            for block in blocks
            if isinstance(block, Lines)
            for view in block.views
            for series in view.series
        ]
        points = sum(len(series.mean) * (1 if series.std is None else 2) for series in curves)
        self._stride = max(1, math.ceil(points / _POINTS))
        maps = [block for block in blocks if isinstance(block, HeatMaps)]
        cells = sum(_cost(frame) for block in maps for item in block.items for frame in item.frames)
        self._share = min(1.0, _CELLS / max(cells, 1))

    def __call__(self, block: Block) -> dict[str, Any]:
        """Encode a block."""
        kind = type(block).__name__.lower()
        common = {"kind": kind, "id": block.id, "title": block.title, "text": block.text, "note": block.note}
        return common | self._body(block)

    @singledispatchmethod
    def _body(self, block: Block) -> dict[str, Any]:
        raise TypeError(f"a page can't show a {type(block).__name__}")

    @_body.register
    def _(self, block: Table) -> dict[str, Any]:
        return {
            "columns": [
                {"label": column.label, "kind": column.kind, "help": column.help} for column in block.columns
            ],
            "rows": [
                {"groups": row.groups, "choice": row.choice, "cells": [_cell(cell) for cell in row.cells]}
                for row in block.rows
            ],
            "choice": block.choice,
            "choices": block.choices,
        }

    @_body.register
    def _(self, block: Lines) -> dict[str, Any]:
        longest = max(len(series.mean) for view in block.views for series in view.series)
        thinned = self._stride > 1 and longest > _SHORT
        said = (
            f"Of long curves, every {_ordinal(self._stride)} point is drawn, and the last." if thinned else ""
        )
        return {
            "note": " ".join(filter(None, (block.note, said))),
            "x": block.x,
            "log": block.log,
            "marked": block.marked,
            "views": [
                {
                    "label": view.label,
                    "y": view.y,
                    "percent": view.percent,
                    "series": [self._series(series) for series in view.series],
                }
                for view in block.views
            ],
        }

    def _series(self, series: Series) -> dict[str, Any]:
        last = len(series.mean) - 1
        stride = self._stride if len(series.mean) > _SHORT else 1
        some = np.unique(np.append(np.arange(0, last, stride), last))
        return {
            "label": series.label,
            "groups": series.groups,
            "style": series.style,
            "owners": series.owners,
            "x": packed(series.x[some]),
            "mean": packed(series.mean[some]),
            "std": None if series.std is None else packed(series.std[some]),
        }

    @_body.register
    def _(self, block: Bars) -> dict[str, Any]:
        return {
            "x": block.x,
            "views": [
                {
                    "label": view.label,
                    "y": view.y,
                    "unit": view.unit,
                    "note": view.note,
                    "categories": view.categories,
                    "groups": view.groups,
                    "owners": view.owners,
                    "stacks": [
                        {"label": stack.label, "values": packed(stack.values)} for stack in view.stacks
                    ],
                }
                for view in block.views
            ],
        }

    @_body.register
    def _(self, block: Strips) -> dict[str, Any]:
        return {
            "x": block.x,
            "y": block.y,
            "views": [
                {
                    "label": view.label,
                    "note": view.note,
                    "groups": view.groups,
                    "kinds": view.kinds,
                    "strips": [
                        {"name": strip.name, "ends": strip.ends, "kinds": strip.kinds}
                        for strip in view.strips
                    ],
                }
                for view in block.views
            ],
        }

    @_body.register
    def _(self, block: HeatMaps) -> dict[str, Any]:
        items = [(item, _spread_out(item.frames, self._share)) for item in block.items]
        kept, all_ = sum(len(some) for _, some in items), sum(len(item.frames) for item in block.items)
        said = (
            f"{kept:,} of {all_:,} measured {block.frame}s are shown, evenly spread." if kept < all_ else ""
        )
        return {
            "note": " ".join(filter(None, (block.note, said))),
            "choice": block.choice,
            "frame": block.frame,
            "maps": [
                {
                    "title": spec.title,
                    "shows": spec.shows,
                    "rows": spec.rows,
                    "columns": spec.columns,
                    "scale": spec.scale,
                    "most": spec.most,
                }
                for spec in block.maps
            ],
            "items": [
                _item(item, some, signed=any(spec.shows == "drop" for spec in block.maps))
                for item, some in items
            ],
        }

    @_body.register
    def _(self, block: Listings) -> dict[str, Any]:
        return {
            "choice": block.choice,
            "items": [
                {
                    "label": listing.label,
                    "groups": listing.groups,
                    "parts": listing.parts,
                    "facts": listing.facts,
                }
                for listing in block.items
            ],
        }

    @_body.register
    def _(self, block: Text) -> dict[str, Any]:
        return {"sentences": block.sentences}


def packed(values: ArrayLike) -> dict[str, Any]:
    """Evenly spaced integers as {"from", "step", "count"}; other numbers as base64 of 32-bit floats."""
    array = np.asarray(values, np.float64)
    steps = np.diff(array)
    if len(array) > 1 and np.array_equal(array, np.round(array)) and (steps == steps[0]).all():
        return {"from": int(array[0]), "step": int(steps[0]), "count": len(array)}
    return {"f4": _base64(array.astype("<f4"))}


def quantised(values: ArrayLike) -> dict[str, Any]:
    """Numbers from 0 to 1 as base64 of 16-bit whole numbers, exact to 1/65,000; the largest is NaN."""
    array = np.asarray(values, np.float64)
    whole = np.where(np.isfinite(array), np.round(np.clip(array, 0, 1) * 65_000), 65_535)
    return {"u2": _base64(whole.astype("<u2"))}


def _base64(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")


def _cell(cell: Cell) -> Any:
    """A cell in as few characters as possible: its text alone if that is also its value."""
    if cell.value == cell.text and not cell.best:
        return cell.text
    # JSON has no NaN, and a single one must not spoil the whole page.
    known = not isinstance(cell.value, float) or math.isfinite(cell.value)
    found: dict[str, Any] = {"t": cell.text, "v": cell.value if known else None}
    if cell.best:
        found["best"] = True
    if cell.spread is not None:
        found["spread"] = cell.spread
    return found


def _item(item: Item, frames: Sequence[Frame], signed: bool) -> dict[str, Any]:
    """An item, with the numbers of all its frames in one array: `before`, if there is one, then the matrix.

    Signed numbers, from −1 to 1, are scaled to between 0 and 1.
    """
    parts = [part for frame in frames for part in (frame.before, frame.values.ravel()) if part is not None]
    numbers = np.concatenate(parts)
    return {
        "label": item.label,
        "groups": item.groups,
        "before": frames[0].before is not None,
        "signed": signed,
        "frames": [
            {
                "label": frame.label,
                "rows": frame.rows,
                "columns": None if frame.columns == frame.rows else frame.columns,
                "owners": frame.owners,
            }
            for frame in frames
        ],
        "data": quantised((numbers + 1) / 2 if signed else numbers),
    }


def _cost(frame: Frame) -> int:
    """The size of a frame in the page, in numbers of two bytes: its cells, names and the JSON around them."""
    return frame.values.size + 2 * (len(frame.rows) + len(frame.columns)) + 40


def _spread_out(things: Sequence[T], share: float) -> Sequence[T]:
    """A share of the things, evenly spread, with the first and the last; at least two."""
    count = max(2, int(len(things) * share))
    if count >= len(things):
        return things
    return [things[index] for index in np.linspace(0, len(things) - 1, count).round().astype(int)]


def _ordinal(stride: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(stride, f"{stride}th")
