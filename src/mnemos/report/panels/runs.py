"""The panel of all runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from mnemos.report.blocks import Block, Cell, Column, Row, Table, whole
from mnemos.report.groups import RunGroup
from mnemos.report.panel import Panel, panels
from mnemos.report.panels.summary import percent
from mnemos.report.reading import RunReading


@panels.register("runs")
class RunsPanel(Panel):
    """Every run with its status and accuracy."""

    title: ClassVar[str] = "Runs"
    order: ClassVar[int] = 190

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """A table with a row for each run."""
        if not groups:
            return
        told = any(reading.status.message for group in groups for reading in group.readings)
        yield Table(
            id="runs",
            title="All runs",
            text="Every run, by the name of its directory, with its state and its final accuracy.",
            columns=(
                Column("run"),
                Column("group"),
                Column("seed", "number"),
                Column("status"),
                Column("rounds", "number"),
                Column("final accuracy", "number"),
                *([Column("message")] if told else []),
            ),
            rows=tuple(_run(group, reading, told) for group in groups for reading in group.readings),
        )


def _run(group: RunGroup, reading: RunReading, told: bool) -> Row:
    asked = reading.experiment.rounds
    rounds = str(reading.rounds) if reading.rounds == asked else f"{reading.rounds} of {asked}"
    cells = (
        Cell(reading.name, reading.name),
        Cell(group.label, group.label),
        whole(reading.seed),
        Cell(reading.status.status, reading.status.status),
        Cell(rounds, reading.rounds),
        Cell("NC", None) if reading.diverged else percent(reading.accuracy),
        *([Cell(reading.status.message, reading.status.message)] if told else []),
    )
    return Row(cells, (group.id,))
