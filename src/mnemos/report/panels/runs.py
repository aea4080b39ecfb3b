"""Every run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from mnemos.report.blocks import Block, Cell, Column, Row, Table, whole
from mnemos.report.groups import Group
from mnemos.report.panel import Panel, panels
from mnemos.report.panels.summary import percent
from mnemos.report.reading import Reading


@panels.register("runs")
class Runs(Panel):
    """Each run with its state."""

    title: ClassVar[str] = "Runs"
    order: ClassVar[int] = 190

    def blocks(self, groups: Sequence[Group]) -> Iterator[Block]:
        """A row a run."""
        if not groups:
            return
        told = any(one.status.message for group in groups for one in group.readings)
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
            rows=tuple(_run(group, one, told) for group in groups for one in group.readings),
        )


def _run(group: Group, one: Reading, told: bool) -> Row:
    asked = one.experiment.rounds
    rounds = str(one.rounds) if one.rounds == asked else f"{one.rounds} of {asked}"
    cells = (
        Cell(one.name, one.name),
        Cell(group.label, group.label),
        whole(one.seed),
        Cell(one.status.status, one.status.status),
        Cell(rounds, one.rounds),
        Cell("NC", None) if one.diverged else percent(one.accuracy),
        *([Cell(one.status.message, one.status.message)] if told else []),
    )
    return Row(cells, (group.id,))
