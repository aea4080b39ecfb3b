"""From runs to the data of the page."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mnemos.report.blocks import Block
from mnemos.report.groups import Group, group, short
from mnemos.report.page.encode import Encoder
from mnemos.report.panel import Panel, panels
from mnemos.report.reading import Reader
from mnemos.runs.run import Run
from mnemos.version import __version__

_FIRST = ("data.name", "method.name", "method.loss.name", "local.lr", "partition.name", "partition.alpha")
"""Fields that come first among those to filter by."""
_MOST_FIELDS, _MOST_VALUES = 8, 60


@dataclass(frozen=True)
class Gathered:
    """What a report shows, before it is drawn in any way."""

    title: str
    groups: list[Group]
    panels: list[tuple[type[Panel], list[Block]]]
    notes: list[str]

    @property
    def blocks(self) -> list[Block]:
        """Those of all panels."""
        return [block for _, blocks in self.panels for block in blocks]


def gather(runs: Iterable[Run], title: str = "", reader: Reader | None = None) -> Gathered:
    """Read the runs, group them and ask every panel; a run that can't be read becomes a note."""
    readings, notes = (reader or Reader()).read(runs)
    groups = group(readings, notes.append)
    shown = [(kind, list(kind().blocks(groups))) for kind in sorted(panels, key=lambda kind: kind.order)]
    return Gathered(title, groups, [(kind, blocks) for kind, blocks in shown if blocks], notes)


def collect(runs: Iterable[Run], title: str = "", reader: Reader | None = None) -> dict[str, Any]:
    """The page's data, as plain JSON without NaN."""
    return as_data(gather(runs, title, reader))


def as_data(gathered: Gathered) -> dict[str, Any]:
    """What was gathered, as plain JSON; long curves and many heat-maps are thinned where needed."""
    encode = Encoder(gathered.blocks)
    return {
        "title": gathered.title or _title(gathered.groups),
        "made": time.strftime("%Y-%m-%d %H:%M %Z"),
        "version": __version__,
        "notes": gathered.notes,
        "fields": _fields(gathered.groups),
        "groups": [_group(one) for one in gathered.groups],
        "panels": [
            {"id": kind.name, "title": kind.title, "blocks": [encode(block) for block in blocks]}
            for kind, blocks in gathered.panels
        ],
    }


def _title(groups: Sequence[Group]) -> str:
    names = dict.fromkeys(type(one.experiment.data).name for one in groups)
    return f"Mnemos report: {', '.join(names)}" if names else "Mnemos report"


def _group(one: Group) -> dict[str, Any]:
    return {
        "id": one.id,
        "label": one.label,
        "runs": [{"name": run.name, "seed": run.seed, "status": run.status.status} for run in one.readings],
    }


def _fields(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Fields that tell groups apart, with each group's value as text."""
    names = dict.fromkeys([*_FIRST, *(name for one in groups for name in one.settings)])
    fields: dict[tuple[int, ...], dict[str, Any]] = {}
    for name in names:
        values = [short(one.settings[name]) if name in one.settings else "–" for one in groups]
        if 1 < len(set(values)) <= _MOST_VALUES:
            # A field that goes along with an earlier one, such as an option of a loss, tells nothing new.
            cut = tuple(map(values.index, values))
            fields.setdefault(cut, {"name": name.removesuffix(".name"), "values": values})
    return list(fields.values())[:_MOST_FIELDS]
