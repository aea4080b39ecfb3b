"""The panel of the global model's accuracy on each client's data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from mnemos.data.partition import Floats
from mnemos.report.average import mean_curve
from mnemos.report.blocks import Block, Cell, Column, Lines, Row, Series, Table, View, spread, whole
from mnemos.report.groups import RunGroup
from mnemos.report.panel import Panel, panels
from mnemos.report.reading import RunReading

_SHARES = np.linspace(0, 1, 101)
"""The quantiles that are drawn."""


@panels.register("clients")
class ClientsPanel(Panel):
    """The accuracy of the global model on each client's own validation data (measure `client-accuracy`)."""

    title: ClassVar[str] = "By client"
    order: ClassVar[int] = 50

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """Quantiles over clients as curves, and the worst and the best tenth as a table."""
        known = [
            (group, [v for reading in group.readings if not reading.diverged and len(v := _last(reading))])
            for group in groups
        ]
        known = [(group, runs) for group, runs in known if runs]
        if not known:
            return
        series = []
        for group, runs in known:
            points = mean_curve([(100 * _SHARES, np.quantile(values, _SHARES)) for values in runs])
            assert points is not None
            series.append(Series(group.label, *points, groups=(group.id,), style=group.id))
        yield Lines(
            id="clients",
            title="Clients from worst to best",
            text="Accuracy of the global model on each client's own validation data after the last "
            "evaluated round, as quantiles over clients: at 10 %, a tenth of the clients has this "
            "accuracy or less. Mean over the seeds that converged, in a band of one standard deviation.",
            x="clients, from worst to best (%)",
            views=(View("accuracy", "accuracy on own validation data", tuple(series), percent=True),),
        )
        yield Table(
            id="clients-table",
            title="Fairness between clients",
            text="The same in numbers, each mean ± standard deviation over seeds: the mean over clients, "
            "the spread (standard deviation) between clients, and the means of the tenths of the clients "
            "with the lowest and the highest accuracy (rounded down, but at least one client).",
            columns=(
                Column("group"),
                Column("clients", "number"),
                Column("mean", "spread"),
                Column("between clients", "spread"),
                Column("worst tenth", "spread"),
                Column("best tenth", "spread"),
            ),
            rows=tuple(_row(group, runs) for group, runs in known),
        )


def _last(reading: RunReading) -> Floats:
    """The accuracies of the last evaluated round, in rising order; empty if there are none."""
    rows = reading.of("validation_accuracy", "client")
    return np.sort(rows.at(int(rows.round[-1])).finite.value) if len(rows) else rows.value


def _row(group: RunGroup, runs: Sequence[Floats]) -> Row:
    tenths = [max(1, len(values) // 10) for values in runs]
    cells = (
        Cell(group.label, group.label),
        whole(len(runs[0])),
        spread([float(values.mean()) for values in runs]),
        spread([float(values.std()) for values in runs]),
        spread([float(values[:tenth].mean()) for values, tenth in zip(runs, tenths, strict=True)]),
        spread([float(values[-tenth:].mean()) for values, tenth in zip(runs, tenths, strict=True)]),
    )
    return Row(cells, (group.id,))
