"""How the global model does on each class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from mnemos.data.partition import Floats
from mnemos.report.average import mean_of_known
from mnemos.report.blocks import Block, Cell, Column, Frame, HeatMaps, Item, Map, Row, Table, dash, spread
from mnemos.report.groups import Group
from mnemos.report.panel import Panel, panels
from mnemos.report.reading import Reading

_MOST_COLUMNS = 20
"""Classes a table has room for."""

ByRound = dict[int, dict[int, float]]
"""Accuracy by round and class."""


@panels.register("classes")
class Classes(Panel):
    """Accuracy by class (`class-accuracy`), of the test set where it was evaluated, else of validation."""

    title: ClassVar[str] = "By class"
    order: ClassVar[int] = 60

    def blocks(self, groups: Sequence[Group]) -> Iterator[Block]:
        """Groups × classes for each data set, with a slider over rounds; and the last round as a table."""
        known = {
            group.id: [v for one in group.readings if not one.diverged and (v := _by_round(one))]
            for group in groups
        }
        sets: dict[str, list[Group]] = {}
        for group in groups:
            if known[group.id]:
                sets.setdefault(group.data, []).append(group)
        if not sets:
            return
        names = _names(sets)
        items = [Item(names[data], tuple(_frames(mine, known))) for data, mine in sets.items()]
        yield HeatMaps(
            id="classes",
            title="Accuracy on each class",
            text="Accuracy of the global model on the samples of each class, mean over the seeds that "
            "converged: of the test set in rounds in which it was evaluated, else of the clients' validation "
            "data.",
            choice="data",
            maps=(Map("Accuracy", "value", "group", "class", "accuracy"),),
            items=tuple(items),
        )
        for data, mine in sets.items():
            classes = items[list(sets).index(data)].frames[-1].columns
            if len(classes) <= _MOST_COLUMNS:
                suffix = f"-{list(sets).index(data) + 1}" if len(sets) > 1 else ""
                yield Table(
                    id=f"classes-table{suffix}",
                    title="Accuracy on each class at the end" + (f", {names[data]}" if suffix else ""),
                    text="After the last evaluated round of each run, mean ± standard deviation over seeds.",
                    columns=(Column("group"), *(Column(f"class {name}", "number") for name in classes)),
                    rows=tuple(_row(group, known[group.id], classes) for group in mine),
                )


def _by_round(one: Reading) -> ByRound:
    found: ByRound = {}
    for name in ("validation_accuracy", "test_accuracy"):  # the test set's takes the place of the other
        rows = one.of(name, "class")
        fresh: ByRound = {}
        ends = zip(rows.round.tolist(), rows.by.get("class", rows.round).tolist(), rows.value, strict=True)
        for number, label, value in ends:
            fresh.setdefault(number, {})[label] = float(value)
        found |= fresh
    return dict(sorted(found.items()))


def _names(sets: dict[str, list[Group]]) -> dict[str, str]:
    names = {data: type(mine[0].experiment.data).name for data, mine in sets.items()}
    twice = len(set(names.values())) < len(names)
    return {
        data: f"{place}. {name}" if twice else name for place, (data, name) in enumerate(names.items(), 1)
    }


def _frames(groups: Sequence[Group], known: dict[int, list[ByRound]]) -> Iterator[Frame]:
    runs = [run for group in groups for run in known[group.id]]
    classes = sorted({label for run in runs for values in run.values() for label in values})
    for number in sorted({number for run in runs for number in run}):
        values = np.full((len(groups), len(classes)), np.nan)
        for place, group in enumerate(groups):
            seen = [_line(run[number], classes) for run in known[group.id] if number in run]
            if seen:
                values[place] = mean_of_known(np.array(seen), 0)
        labels, owners = tuple(group.label for group in groups), tuple(group.id for group in groups)
        yield Frame(str(number), labels, tuple(classes), values, owners=owners)


def _line(values: dict[int, float], classes: Sequence[int]) -> Floats:
    return np.array([values.get(label, np.nan) for label in classes])


def _row(group: Group, runs: Sequence[ByRound], classes: Sequence[int | str]) -> Row:
    last = [run[max(run)] for run in runs]
    cells = []
    for label in classes:
        values = [one[int(label)] for one in last if int(label) in one]
        cells.append(spread(values) if values else dash())
    return Row((Cell(group.label, group.label), *cells), (group.id,))
