"""The panel of advice: what `mnemos advise` or `mnemos tune` has found in the folder of the runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from mnemos.common.plain import number, parse_json
from mnemos.report.blocks import Block, Cell, Column, Row, Table, Text, dash, minus
from mnemos.report.groups import RunGroup
from mnemos.report.panel import Panel, panels
from mnemos.report.panels.cost import duration, size
from mnemos.report.panels.summary import percent

_FILE = "advice.json"
_BROKEN = (OSError, ValueError, TypeError, KeyError, AttributeError)
"""What reading a file raises that isn't advice."""


@panels.register("advice")
class AdvicePanel(Panel):
    """What to take, the finalists with their intervals and costs, and what was ruled out and why."""

    title: ClassVar[str] = "Advice"
    order: ClassVar[int] = 5

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """A text and two tables for each folder that has advice about some of the runs."""
        paths = [reading.run.path for group in groups for reading in group.readings]
        folders = list(dict.fromkeys(path.parent for path in paths))
        found = [(folder, _read(folder)) for folder in folders]
        known = [(folder, advice) for folder, advice in found if advice]
        for index, (folder, advice) in enumerate(known, 1):
            names = {path.name for path in paths if path.parent == folder}
            if not names & set(map(str, advice["runs"])):
                continue
            # The file may come from anyone: whatever it holds instead of advice is left out.
            with suppress(*_BROKEN):
                yield from list(_blocks(advice, f"-{index}" if len(known) > 1 else ""))


def _read(folder: Path) -> dict[str, Any]:
    """The advice in a folder; empty if there is none, or if it can't be read."""
    try:
        advice = parse_json((folder / _FILE).read_text())
        return advice if isinstance(advice["runs"], list) else {}
    except _BROKEN:
        return {}


def _blocks(advice: dict[str, Any], suffix: str) -> Iterator[Block]:
    yield Text(
        id=f"advice{suffix}",
        title="What to take",
        text="What follows from the pilots, which were judged on validation data; test data wasn't touched.",
        note=" ".join(f"Warning: {sentence}." for sentence in advice["warnings"]),
        sentences=(*map(str, advice["sentences"]), *map(str, advice["description"]["sentences"])),
    )
    if advice["ranked"]:
        yield _ranked(advice["ranked"], suffix)
    if advice["ruled_out"]:
        yield Table(
            id=f"advice-ruled-out{suffix}",
            title="What was ruled out",
            text="Candidates that are no finalists, and why.",
            columns=(Column("candidate"), Column("reason")),
            rows=tuple(
                Row((_text(candidate["name"]), _text(candidate["reason"])))
                for candidate in advice["ruled_out"]
            ),
        )


def _ranked(rows: Sequence[dict[str, Any]], suffix: str) -> Table:
    return Table(
        id=f"advice-finalists{suffix}",
        title="Finalists",
        text="Means over the seeds of all finalists: validation accuracy with its 95 % interval, forgetting, "
        "the paired difference from the best with its interval and p after Holm's correction, and what a "
        "pilot takes. Front: no other has both a higher accuracy and less forgetting.",
        note="The seeds of the finalists aren't the one by which they were chosen. Differences are in "
        "percentage points.",
        columns=(
            Column("finalist"),
            Column("accuracy", "number"),
            Column("95 % from", "number"),
            Column("to", "number"),
            Column("forgetting", "number"),
            Column("difference", "number"),
            Column("diff. from", "number", "lower end of the difference's 95 % interval"),
            Column("diff. to", "number", "upper end of the difference's 95 % interval"),
            Column("p (Holm)", "number"),
            Column("verdict"),
            Column("front"),
            Column("time", "number", "of a pilot"),
            Column("bytes per round", "number"),
        ),
        rows=tuple(Row(_cells(row, best=index == 0)) for index, row in enumerate(rows)),
    )


def _cells(row: dict[str, Any], *, best: bool) -> tuple[Cell, ...]:
    accuracy = percent(_number(row["accuracy"]))
    seconds, sent = number(row["seconds"]), number(row["bytes"])
    p = _number(row["p"])
    return (
        _text(row["name"]),
        Cell(accuracy.text, accuracy.value, best=best),
        percent(_number(row["low"])),
        percent(_number(row["high"])),
        percent(_number(row["forgetting"])),
        *(_points(_number(row[name])) for name in ("difference", "difference_low", "difference_high")),
        dash() if p is None else Cell(f"{p:.2g}", p),
        _text(row["verdict"]),
        _text("yes" if row["front"] else ""),
        Cell(duration(seconds), seconds),
        Cell(size(sent), sent),
    )


def _number(value: Any) -> float | None:
    return None if value is None else number(value)


def _points(value: float | None) -> Cell:
    return dash() if value is None else Cell(minus(f"{value:+.1f}"), value)


def _text(value: Any) -> Cell:
    return Cell(str(value), str(value))
