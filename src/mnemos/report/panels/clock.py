"""The panel of simulated time: metrics over time, and the staleness of updates."""

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
from mnemos.report.groups import RunGroup
from mnemos.report.panel import Panel, panels
from mnemos.report.reading import RunReading

_MEASURED = ("validation_accuracy", "test_accuracy", "train_loss")
_POINTS = 100
"""The number of times at which the curves of several seeds are averaged."""
_MOST = 10
"""Updates with a larger staleness are counted together."""


@panels.register("clock")
class ClockPanel(Panel):
    """Runs with a simulated clock (`synchronous`, `asynchronous`, `fedasync`, `fedbuff`)."""

    title: ClassVar[str] = "Simulated time"
    order: ClassVar[int] = 24

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """A table, curves over simulated time, and histograms of staleness."""
        known = [group for group in groups if any(len(reading.of("time")) for reading in group.readings)]
        if not known:
            return
        yield Table(
            id="clock-table",
            title="Time and staleness",
            text="The simulated time at the last round, and the staleness of updates: how many steps the "
            "server has made since it sent the model. Mean over a group's runs.",
            note="The unit of time is a local step of an ordinary client.",
            columns=(
                Column("group"),
                Column("rounds", "number"),
                Column("time", "number"),
                Column("time per round", "number"),
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
                text="Measurements of the global model over simulated time. Mean over seeds in a band of "
                "one standard deviation.",
                note="With several seeds, each is interpolated between its measurements, from the time "
                "when all have been measured until the first ends.",
                x="simulated time",
                views=tuple(views),
            )
        late = [(group, stale) for group in known if len(stale := _staleness(group.readings))]
        if late:
            yield Bars(
                id="clock-staleness",
                title="Staleness of updates",
                text="The share of all updates of a group by their staleness.",
                x="staleness",
                views=tuple(_histogram(group, stale) for group, stale in late),
            )


def _staleness(readings: Sequence[RunReading]) -> Floats:
    """The staleness of all updates of some runs."""
    return np.concatenate([reading.of("staleness", "client").value for reading in readings])


def _row(group: RunGroup) -> Row:
    timed = [reading.of("time") for reading in group.readings if len(reading.of("time"))]
    rounds, time = mean_of([len(rows) for rows in timed]), mean_of([float(rows.value[-1]) for rows in timed])
    each = [stale for reading in group.readings if len(stale := _staleness([reading]))]
    numbers = [rounds, time, time / rounds]
    cells = [Cell(f"{value:.4g}", value) for value in numbers]
    if each:
        mean, most = mean_of([float(stale.mean()) for stale in each]), max(float(s.max()) for s in each)
        cells += [Cell(f"{mean:.3g}", mean), Cell(f"{most:g}", most)]
    else:
        cells += [dash(), dash()]
    return Row((Cell(group.label, group.label), *cells), (group.id,))


def _over_time(groups: Sequence[RunGroup], name: str) -> View:
    """A metric over simulated time, with a curve for each group."""
    label = name.replace("_", " ")
    series = []
    for group in groups:
        curves = [curve for reading in group.readings if len((curve := _curve(reading, name))[0])]
        if curves:
            series.append(Series(group.label, *_mean(curves), groups=(group.id,), style=group.id))
    return View(label, label, tuple(series), percent="accuracy" in name)


def _curve(reading: RunReading, name: str) -> tuple[Floats, Floats]:
    """The times and values of a metric of the whole federation."""
    clock, rows = reading.of("time"), reading.of(name).finite
    times = dict(zip(clock.round.tolist(), clock.value.tolist(), strict=True))
    there = np.isin(rows.round, clock.round)
    return np.array([times[round] for round in rows.round[there].tolist()]), rows.value[there]


def _mean(curves: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats, Floats | None]:
    """Times, mean and standard deviation of curves that were measured at different times."""
    if len(curves) == 1:
        return *curves[0], None
    first, last = max(times[0] for times, _ in curves), min(times[-1] for times, _ in curves)
    grid = np.linspace(first, last, _POINTS) if first < last else np.array([last])
    values = np.stack([np.interp(grid, *curve) for curve in curves])
    return grid, values.mean(0), values.std(0, ddof=1)


def _histogram(group: RunGroup, stale: Floats) -> BarView:
    """The share of a group's updates by their staleness."""
    counts = np.bincount(np.minimum(stale, _MOST + 1).astype(np.int64))
    names = [str(late) if late <= _MOST else f"> {_MOST}" for late in range(len(counts))]
    shares = Stack("share of updates", counts / counts.sum())
    return BarView(group.label, "share of updates", tuple(names), (shares,), groups=(group.id,))
