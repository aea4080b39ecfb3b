"""What it took: time, and bytes sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import numpy as np

from mnemos.report.average import mean_of
from mnemos.report.blocks import Bars, BarView, Block, Cell, Column, Row, Stack, Table, dash
from mnemos.report.groups import Group
from mnemos.report.panel import Panel, panels
from mnemos.report.reading import Reading

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


@panels.register("cost")
class Cost(Panel):
    """Seconds (from the runs' timing) and bytes (from their metrics)."""

    title: ClassVar[str] = "Time and bytes"
    order: ClassVar[int] = 110

    def blocks(self, groups: Sequence[Group]) -> Iterator[Block]:
        """A table, and bars for both."""
        known = [group for group in groups if any(len(one.seconds) or _bytes(one) for one in group.readings)]
        if not known:
            return
        up, down = (
            [_mean([_total(one, name) for one in group.readings]) for group in known]
            for name in ("bytes_up", "bytes_down")
        )
        seconds = [_mean([float(one.seconds.sum()) or None for one in group.readings]) for group in known]
        yield Table(
            id="cost",
            title="Time and bytes sent",
            text="Mean over a group's runs, as far as they have gone: median time of a round, time of all "
            "rounds together, and bytes sent by all clients (up) and to all clients (down).",
            note="Times are of the machine the runs were made on, and of what else it did. Bytes count "
            "tensors as they are, without compression or a protocol's overhead. 1 MB = 10⁶ bytes.",
            columns=(
                Column("group"),
                Column("time a round", "number"),
                Column("time in all", "number"),
                Column("up a round", "number"),
                Column("down a round", "number"),
                Column("up in all", "number"),
                Column("down in all", "number"),
                Column("rounds", "number"),
            ),
            rows=tuple(_row(group, *totals) for group, *totals in zip(known, seconds, up, down, strict=True)),
        )
        names, owners = tuple(group.label for group in known), tuple(group.id for group in known)
        sent = (_stack("up", up), _stack("down", down))
        views = [
            BarView("bytes sent", "bytes in all rounds", names, sent, owners=owners, unit="bytes"),
            BarView(
                "time", "time of all rounds", names, (_stack("time", seconds),), owners=owners, unit="seconds"
            ),
        ]
        views = [view for view in views if any(np.isfinite(stack.values).any() for stack in view.stacks)]
        yield Bars(
            id="cost-bars",
            title="Cost of a run",
            text="Bytes sent, or time, of a run of each group, mean over seeds.",
            x="group",
            views=tuple(views),
        )


def size(count: float) -> str:
    """`4.21 MB`."""
    place = 0
    while count >= 999.5 and place < len(_UNITS) - 1:
        count, place = count / 1000, place + 1
    return f"{count:.3g} {_UNITS[place]}"


def duration(seconds: float) -> str:
    """`0.31 s`, `12 s`, `3 min 20 s` or `5 h 2 min`."""
    if seconds < 59.5:
        return f"{seconds:.2g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _row(group: Group, seconds: float | None, up: float | None, down: float | None) -> Row:
    each = _mean([float(np.median(one.seconds)) if len(one.seconds) else None for one in group.readings])
    sent = [
        _mean([float(rows.value.mean()) for one in group.readings if len(rows := one.of(name))])
        for name in ("bytes_up", "bytes_down")
    ]
    rounds = mean_of([one.rounds for one in group.readings])
    cells = (
        Cell(group.label, group.label),
        _cell(each, duration),
        _cell(seconds, duration),
        *(_cell(count, size) for count in sent),
        _cell(up, size),
        _cell(down, size),
        Cell(f"{rounds:g}", rounds),
    )
    return Row(cells, (group.id,))


def _cell(value: float | None, words: Callable[[float], str]) -> Cell:
    return dash() if value is None else Cell(words(value), value)


def _bytes(one: Reading) -> bool:
    return len(one.of("bytes_up")) > 0


def _total(one: Reading, name: str) -> float | None:
    rows = one.of(name)
    return float(rows.value.sum()) if len(rows) else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean_of(known) if known else None


def _stack(label: str, values: Sequence[float | None]) -> Stack:
    return Stack(label, np.array([np.nan if value is None else value for value in values]))
