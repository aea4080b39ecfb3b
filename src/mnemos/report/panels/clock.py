"""Simulated time: what was reached when, and how late updates were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from mnemos.data.partition import Floats
from mnemos.report.average import mean_of
from mnemos.report.blocks import (
    Bars,
    BarView,
    Block,
    Cell,
    Column,
    Lines,
    Row,
    Series,
    Stack,
    Table,
    View,
    dash,
)
from mnemos.report.groups import Group
from mnemos.report.panel import Panel, panels
from mnemos.report.reading import Reading

_MEASURED = ("validation_accuracy", "test_accuracy", "train_loss")
_POINTS = 100
"""Places at which the curves of several seeds are compared."""
_MOST = 10
"""Updates that are later than this are counted together."""


@panels.register("clock")
class Clock(Panel):
    """Runs whose clock tells a simulated time (`synchronous`, `asynchronous`, `fedasync`, `fedbuff`)."""

    title: ClassVar[str] = "Simulated time"
    order: ClassVar[int] = 24

    def blocks(self, groups: Sequence[Group]) -> Iterator[Block]:
        """Numbers, curves over time, and how late updates were."""
        known = [group for group in groups if any(len(one.of("time")) for one in group.readings)]
        if not known:
            return
        yield Table(
            id="clock-table",
            title="Time and staleness",
            text="The simulated time at the last round, and the staleness of updates: how often the server "
            "has moved since it sent the client the model. Mean over a group's runs.",
            note="The unit of time is a local step of an ordinary client.",
            columns=(
                Column("group"),
                Column("rounds", "number"),
                Column("time", "number"),
                Column("time a round", "number"),
                Column("mean staleness", "number"),
                Column("largest staleness", "number"),
            ),
            rows=tuple(_row(group) for group in known),
        )
        views = [view for name in _MEASURED if (view := _over_time(known, name)).series]
        if views:
            yield Lines(
                id="clock",
                title="Accuracy and loss over simulated time",
                text="What was measured of the global model, by the simulated time at which it was. Mean "
                "over seeds in a band of one standard deviation.",
                note="Where there are several seeds, each is taken on straight lines between its "
                "measurements, from the time at which all have been measured to the first that ends.",
                x="simulated time",
                views=tuple(views),
            )
        late = [(group, stale) for group in known if len(stale := _staleness(group.readings))]
        if late:
            yield Bars(
                id="clock-staleness",
                title="How late updates were",
                text="The share of all updates of a group by their staleness.",
                x="staleness",
                views=tuple(_histogram(group, stale) for group, stale in late),
            )


def _staleness(readings: Sequence[Reading]) -> Floats:
    return np.concatenate([one.of("staleness", "client").value for one in readings])


def _row(group: Group) -> Row:
    timed = [one.of("time") for one in group.readings if len(one.of("time"))]
    rounds, time = mean_of([len(rows) for rows in timed]), mean_of([float(rows.value[-1]) for rows in timed])
    each = [stale for one in group.readings if len(stale := _staleness([one]))]
    numbers = [rounds, time, time / rounds]
    cells = [Cell(f"{number:.4g}", number) for number in numbers]
    if each:
        mean, most = mean_of([float(stale.mean()) for stale in each]), max(float(s.max()) for s in each)
        cells += [Cell(f"{mean:.3g}", mean), Cell(f"{most:g}", most)]
    else:
        cells += [dash(), dash()]
    return Row((Cell(group.label, group.label), *cells), (group.id,))


def _over_time(groups: Sequence[Group], name: str) -> View:
    """A metric over simulated time, one curve a group."""
    label = name.replace("_", " ")
    series = []
    for group in groups:
        curves = [curve for one in group.readings if len((curve := _curve(one, name))[0])]
        if curves:
            series.append(Series(group.label, *_mean(curves), groups=(group.id,), style=group.id))
    return View(label, label, tuple(series), percent="accuracy" in name)


def _curve(one: Reading, name: str) -> tuple[Floats, Floats]:
    """(times, values) of a metric of the whole federation."""
    clock, rows = one.of("time"), one.of(name).finite
    times = dict(zip(clock.round.tolist(), clock.value.tolist(), strict=True))
    there = np.isin(rows.round, clock.round)
    return np.array([times[number] for number in rows.round[there].tolist()]), rows.value[there]


def _mean(curves: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats, Floats | None]:
    """Times, mean and standard deviation of curves that were measured at different times."""
    if len(curves) == 1:
        return *curves[0], None
    first, last = max(times[0] for times, _ in curves), min(times[-1] for times, _ in curves)
    grid = np.linspace(first, last, _POINTS) if first < last else np.array([last])
    values = np.stack([np.interp(grid, *curve) for curve in curves])
    return grid, values.mean(0), values.std(0, ddof=1)


def _histogram(group: Group, stale: Floats) -> BarView:
    counts = np.bincount(np.minimum(stale, _MOST + 1).astype(np.int64))
    names = [str(late) if late <= _MOST else f"> {_MOST}" for late in range(len(counts))]
    shares = Stack("share of updates", counts / counts.sum())
    return BarView(group.label, "share of updates", tuple(names), (shares,), groups=(group.id,))
