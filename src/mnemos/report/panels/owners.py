"""The panel of a real federation's owners: who is there, awaited, dropped or refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from mnemos.errors import DataError
from mnemos.report.blocks import Block, Cell, Column, Row, Table
from mnemos.report.groups import RunGroup
from mnemos.report.panel import Panel, panels
from mnemos.report.reading import RunReading

_FILE = "owners.json"


@panels.register("owners")
class OwnersPanel(Panel):
    """The owners of runs that `mnemos federate serve` has made, as the server saw them last."""

    title: ClassVar[str] = "Owners"
    order: ClassVar[int] = 75

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """A table with a row for each run and owner."""
        rows = [
            row
            for group in groups
            for reading in group.readings
            for row in _rows(group, reading, _known(reading))
        ]
        if rows:
            yield Table(
                id="owners",
                title="Owners of the federation",
                text="What the server last knew about each owner: here, awaited (it hasn't joined yet), gone "
                "(its connection is lost), dropped (the last round continued without it) or refused, since "
                "when, and why; and in how many rounds it has trained, was dropped, or had its update "
                "rejected.",
                columns=(
                    Column("run"),
                    Column("owner"),
                    Column("state"),
                    Column("since"),
                    Column("trained", "number"),
                    Column("dropped", "number"),
                    Column("rejected", "number"),
                    Column("why"),
                ),
                rows=tuple(rows),
            )


def _known(reading: RunReading) -> dict[str, Any]:
    """What the run's directory says about its owners; empty for a run that has none."""
    try:
        owners = reading.run.read_json(_FILE).get("owners")
    except DataError:
        return {}
    return owners if isinstance(owners, dict) else {}


def _rows(group: RunGroup, reading: RunReading, owners: Mapping[str, Any]) -> Iterator[Row]:
    for name, owner in sorted(owners.items()):
        if isinstance(owner, dict):
            texts = [str(owner.get(key, "")) for key in ("state", "since")]
            counts = [_count(owner.get(key)) for key in ("answered", "dropped", "rejected")]
            cells = [Cell(text, text) for text in (reading.name, name, *texts)]
            why = str(owner.get("why", ""))
            yield Row((*cells, *(Cell(str(count), count) for count in counts), Cell(why, why)), (group.id,))


def _count(found: object) -> int:
    return found if isinstance(found, int) else 0
