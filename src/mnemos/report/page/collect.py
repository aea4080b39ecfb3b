"""Making the page's data from runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mnemos.report.blocks import Block
from mnemos.report.groups import RunGroup, group, short
from mnemos.report.page.encode import BlockEncoder
from mnemos.report.panel import Panel, panels
from mnemos.report.reading import Reader
from mnemos.runs.run import Run
from mnemos.version import __version__

_FIRST = ("data.name", "method.name", "method.loss.name", "local.lr", "partition.name", "partition.alpha")
"""Fields that come first among those to filter groups by."""
_MOST_FIELDS, _MOST_VALUES = 8, 60


@dataclass(frozen=True)
class Gathered:
    """The content of a report: groups of runs, and the blocks of each panel."""

    title: str
    groups: list[RunGroup]
    panels: list[tuple[type[Panel], list[Block]]]
    notes: list[str]

    @property
    def blocks(self) -> list[Block]:
        """The blocks of all panels."""
        return [block for _, blocks in self.panels for block in blocks]


def gather(runs: Iterable[Run], title: str = "", reader: Reader | None = None) -> Gathered:
    """Read the runs, group them, and make the blocks of all panels. A run that can't be read makes a note."""
    readings, notes = (reader or Reader()).read(runs)
    groups = group(readings, notes.append)
    shown = [(kind, list(kind().blocks(groups))) for kind in sorted(panels, key=lambda kind: kind.order)]
    return Gathered(title, groups, [(kind, blocks) for kind, blocks in shown if blocks], notes)


def collect(runs: Iterable[Run], title: str = "", reader: Reader | None = None) -> dict[str, Any]:
    """The page's data, as plain JSON without NaN."""
    return as_data(gather(runs, title, reader))


def as_data(gathered: Gathered) -> dict[str, Any]:
    """The content of a report as plain JSON. Long curves and many heat-maps are thinned if needed."""
    encode = BlockEncoder(gathered.blocks)
    return {
        "title": gathered.title or _title(gathered.groups),
        "made": time.strftime("%Y-%m-%d %H:%M %Z"),
        "version": __version__,
        "notes": gathered.notes,
        "fields": _fields(gathered.groups),
        "groups": [_group(run_group) for run_group in gathered.groups],
        "panels": [
            {"id": kind.name, "title": kind.title, "blocks": [encode(block) for block in blocks]}
            for kind, blocks in gathered.panels
        ],
    }


def _title(groups: Sequence[RunGroup]) -> str:
    names = dict.fromkeys(run_group.experiment.data.title for run_group in groups)
    return f"Mnemos report: {', '.join(names)}" if names else "Mnemos report"


def _group(run_group: RunGroup) -> dict[str, Any]:
    return {
        "id": run_group.id,
        "label": run_group.label,
        "runs": [
            {"name": run.name, "seed": run.seed, "status": run.status.status} for run in run_group.readings
        ],
    }


def _fields(groups: Sequence[RunGroup]) -> list[dict[str, Any]]:
    """The fields in which groups differ, with each group's value as text."""
    names = dict.fromkeys([*_FIRST, *(name for run_group in groups for name in run_group.settings)])
    fields: dict[tuple[int, ...], dict[str, Any]] = {}
    for name in names:
        values = [
            short(run_group.settings[name]) if name in run_group.settings else "–" for run_group in groups
        ]
        if 1 < len(set(values)) <= _MOST_VALUES:
            # A field that divides the groups as an earlier one does, as an option of a loss may, is left out.
            cut = tuple(map(values.index, values))
            fields.setdefault(cut, {"name": name.removesuffix(".name"), "values": values})
    return list(fields.values())[:_MOST_FIELDS]
