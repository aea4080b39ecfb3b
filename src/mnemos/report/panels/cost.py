"""The panel of costs: seconds and bytes sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import numpy as np

from mnemos.report.average import mean_of
from mnemos.report.blocks import Bars, BarView, Block, Cell, Column, Row, Stack, Table, dash
from mnemos.report.groups import RunGroup
from mnemos.report.panel import Panel, panels
from mnemos.report.reading import RunReading

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")

PerGroup = Sequence[float | None]
"""A value for each group; None if it isn't known."""


@panels.register("cost")
class CostPanel(Panel):
    """Seconds (from the runs' timing files) and bytes sent (from their metrics)."""

    title: ClassVar[str] = "Time and bytes"
    order: ClassVar[int] = 110

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """A table, and bars for seconds and for bytes."""
        known = [group for group in groups if _has_costs(group)]
        if not known:
            return
        up = [_mean_total(group, "bytes_up") for group in known]
        down = [_mean_total(group, "bytes_down") for group in known]
        seconds = [_mean_seconds(group) for group in known]
        yield Table(
            id="cost",
            title="Time and bytes sent",
            text="Mean over a group's runs, as far as they have gone: median time of a round, time of all "
            "rounds together, and bytes sent by all clients (up) and to all clients (down).",
            note="Times depend on the machine and its other work. Bytes count tensors without compression "
            "or a protocol's overhead. 1 MB = 10⁶ bytes.",
            columns=(
                Column("group"),
                Column("time per round", "number"),
                Column("total time", "number"),
                Column("up per round", "number"),
                Column("down per round", "number"),
                Column("total up", "number"),
                Column("total down", "number"),
                Column("rounds", "number"),
            ),
            rows=tuple(_row(group, *totals) for group, *totals in zip(known, seconds, up, down, strict=True)),
        )
        yield Bars(
            id="cost-bars",
            title="Cost of a run",
            text="Bytes sent, or time taken, by a run of each group, mean over seeds.",
            x="group",
            views=tuple(_views(known, seconds, up, down)),
        )


def _views(groups: Sequence[RunGroup], seconds: PerGroup, up: PerGroup, down: PerGroup) -> Iterator[BarView]:
    """The bars of bytes and of seconds, as far as they are known of any group."""
    names, owners = tuple(group.label for group in groups), tuple(group.id for group in groups)
    sent, time = (_stack("up", up), _stack("down", down)), (_stack("time", seconds),)
    for view in (
        BarView("bytes sent", "bytes in all rounds", names, sent, owners=owners, unit="bytes"),
        BarView("time", "time of all rounds", names, time, owners=owners, unit="seconds"),
    ):
        if any(np.isfinite(stack.values).any() for stack in view.stacks):
            yield view


def size(count: float) -> str:
    """A number of bytes as text: `4.21 MB`."""
    unit = 0
    while count >= 999.5 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.3g} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """A time as text: `0.31 s`, `12 s`, `3 min 20 s` or `5 h 2 min`."""
    if seconds < 59.5:
        return f"{seconds:.2g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _row(group: RunGroup, seconds: float | None, up: float | None, down: float | None) -> Row:
    each = _mean(
        [float(np.median(reading.seconds)) if len(reading.seconds) else None for reading in group.readings]
    )
    sent = [
        _mean([float(rows.value.mean()) for reading in group.readings if len(rows := reading.of(name))])
        for name in ("bytes_up", "bytes_down")
    ]
    rounds = mean_of([reading.rounds for reading in group.readings])
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


def _has_costs(group: RunGroup) -> bool:
    """Whether any run of a group has recorded seconds or bytes."""
    return any(len(reading.seconds) or len(reading.of("bytes_up")) for reading in group.readings)


def _mean_total(group: RunGroup, name: str) -> float | None:
    """The sum of a metric over rounds, mean over a group's runs."""
    return _mean([_total(reading, name) for reading in group.readings])


def _mean_seconds(group: RunGroup) -> float | None:
    """The seconds of all rounds, mean over a group's runs."""
    return _mean([float(reading.seconds.sum()) or None for reading in group.readings])


def _total(reading: RunReading, name: str) -> float | None:
    rows = reading.of(name)
    return float(rows.value.sum()) if len(rows) else None


def _mean(values: PerGroup) -> float | None:
    known = [value for value in values if value is not None]
    return mean_of(known) if known else None


def _stack(label: str, values: PerGroup) -> Stack:
    return Stack(label, np.array([np.nan if value is None else value for value in values]))
