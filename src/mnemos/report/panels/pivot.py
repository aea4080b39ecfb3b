"""The panel of methods by settings: the table that a paper prints."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from mnemos.report.blocks import Block, Cell, Column, Row, Table, dash, spread
from mnemos.report.groups import RunGroup, labels, telling_words
from mnemos.report.panel import Panel, panels
from mnemos.report.panels.significance import told_apart
from mnemos.report.panels.summary import best_groups

_METHOD = "method."
_MOST = 12
"""The most settings that become columns."""


@panels.register("pivot")
class PivotPanel(Panel):
    """Final accuracy of methods (rows) in several settings (columns), if runs differ in both."""

    title: ClassVar[str] = "Methods by settings"
    order: ClassVar[int] = 12

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """A table with a row for each method and a column for each setting."""
        rows = _named(groups, method=True)
        columns = _named(groups, method=False)
        if len(rows) < 2 or not 2 <= len(columns) <= _MOST:
            return
        at = {(_key(group, method=True), _key(group, method=False)): group for group in groups}
        if 2 * len(at) < len(rows) * len(columns):  # settings that belong to single methods
            return
        marked: dict[int, bool] = {}
        for column in columns:
            rivals = [at[row, column] for row in rows if (row, column) in at]
            best = best_groups(rivals)
            marked |= {group.id: told_apart(group, rivals) for group in rivals if group.id in best}
        yield Table(
            id="pivot",
            title="Methods by settings",
            text="Final accuracy, mean ± standard deviation over seeds: a row for each method, a column for "
            "each setting. The best mean of each column is marked.",
            columns=(Column("method"), *(Column(label, "spread") for label in columns.values())),
            rows=tuple(
                Row(
                    (Cell(label, label), *(_cell(at.get((row, column)), marked) for column in columns)),
                    tuple(at[row, column].id for column in columns if (row, column) in at),
                )
                for row, label in rows.items()
            ),
        )


def _cell(group: RunGroup | None, marked: Mapping[int, bool]) -> Cell:
    """The accuracy of a group; `marked` has the best groups, and whether they are told apart from others."""
    if group is None:
        return dash()
    cell = spread([*group.accuracies.values()], diverged=group.diverged, best=group.id in marked)
    return replace(cell, apart=marked.get(group.id, False))


def _part(group: RunGroup, *, method: bool) -> dict[str, Any]:
    """The settings of a group's method, or all others."""
    return {name: value for name, value in group.settings.items() if name.startswith(_METHOD) == method}


def _key(group: RunGroup, *, method: bool) -> str:
    return json.dumps(_part(group, method=method), sort_keys=True)


def _named(groups: Sequence[RunGroup], *, method: bool) -> dict[str, str]:
    """Labels of the groups' methods, or of their other settings, by key; they say what differs."""
    first = {_key(group, method=method): group for group in reversed(groups)}
    ordered = sorted(first.items(), key=lambda found: found[1].id)
    settings = [_part(group, method=method) for _, group in ordered]
    paths = [group.readings[0].run.path for _, group in ordered]
    names = labels(settings, paths) if method else telling_words(settings)
    return {key: name for (key, _), name in zip(ordered, names, strict=True)}
