"""The panel of clients and updates that were left out, and of repeated rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from mnemos.federation.records import REPEATED
from mnemos.federation.round import NOTED
from mnemos.report.average import mean_of
from mnemos.report.blocks import Block, Cell, Column, Row, Table, dash
from mnemos.report.groups import RunGroup
from mnemos.report.panel import Panel, panels
from mnemos.report.reading import MetricRows


@panels.register("left-out")
class LeftOutPanel(Panel):
    """Clients that were dropped, rejected or shortened, by reason."""

    title: ClassVar[str] = "Left out"
    order: ClassVar[int] = 76

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """A table with a row for each group and reason."""
        rows = [row for group in groups for row in _rows(group)]
        if rows:
            yield Table(
                id="left-out",
                title="Clients and updates left out",
                text="Clients that didn't answer (dropped) and updates that were not used (rejected), by "
                "reason, and updates that the guard has shortened: mean over a group's runs so far. A "
                "round with too few updates is repeated "
                "with other clients.",
                columns=(
                    Column("group"),
                    Column("what"),
                    Column("how often", "number"),
                    Column("in rounds", "number"),
                    Column("different clients", "number"),
                ),
                rows=tuple(rows),
            )


def _rows(group: RunGroup) -> Iterator[Row]:
    names = {name: None for reading in group.readings for name in reading.names("client")}
    for name in sorted(name for name in names if name.startswith(NOTED)):
        found = [reading.of(name, "client") for reading in group.readings]
        clients = _mean([len(np.unique(rows.by["client"])) if len(rows) else 0 for rows in found])
        yield _row(group, name, found, clients)
    repeated = [reading.of(REPEATED) for reading in group.readings]
    if any(map(len, repeated)):
        yield _row(group, "round repeated", repeated, dash())


def _row(group: RunGroup, name: str, found: Sequence[MetricRows], clients: Cell) -> Row:
    often = _mean([len(rows) for rows in found])
    rounds = _mean([len(np.unique(rows.round)) for rows in found])
    return Row((Cell(group.label, group.label), Cell(name, name), often, rounds, clients), (group.id,))


def _mean(counts: Sequence[int]) -> Cell:
    mean = mean_of(counts)
    return Cell(f"{mean:.3g}" if mean % 1 else f"{mean:.0f}", mean)
