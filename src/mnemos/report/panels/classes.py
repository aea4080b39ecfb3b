"""The panel of the global model's accuracy on each class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from mnemos.data.partition import Floats
from mnemos.report.average import mean_of_known
from mnemos.report.blocks import Block, Cell, Column, Frame, HeatMaps, Item, Map, Row, Table, dash, spread
from mnemos.report.groups import RunGroup
from mnemos.report.panel import Panel, panels
from mnemos.report.reading import RunReading

_MOST_COLUMNS = 20
"""With more classes there is no table."""

ByRound = dict[int, dict[int, float]]
"""Accuracy by round and class."""


@panels.register("classes")
class ClassesPanel(Panel):
    """Accuracy by class (measure `class-accuracy`), on test data if there is a test, else on validation."""

    title: ClassVar[str] = "By class"
    order: ClassVar[int] = 60

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """For each data set, heat-maps of groups × classes with a slider over rounds; the last as a table."""
        known = {
            group.id: [v for reading in group.readings if not reading.diverged and (v := _by_round(reading))]
            for group in groups
        }
        sets: dict[str, list[RunGroup]] = {}
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


def _by_round(reading: RunReading) -> ByRound:
    """A run's accuracies; where the test set was evaluated, its accuracies replace those of validation."""
    found: ByRound = {}
    for name in ("validation_accuracy", "test_accuracy"):
        rows = reading.of(name, "class")
        fresh: ByRound = {}
        ends = zip(rows.round.tolist(), rows.by.get("class", rows.round).tolist(), rows.value, strict=True)
        for round, label, value in ends:
            fresh.setdefault(round, {})[label] = float(value)
        found |= fresh
    return dict(sorted(found.items()))


def _names(sets: dict[str, list[RunGroup]]) -> dict[str, str]:
    """The label of each data set: its name, with a number if a name appears twice."""
    names = {data: mine[0].experiment.data.title for data, mine in sets.items()}
    twice = len(set(names.values())) < len(names)
    return {
        data: f"{index}. {name}" if twice else name for index, (data, name) in enumerate(names.items(), 1)
    }


def _frames(groups: Sequence[RunGroup], known: dict[int, list[ByRound]]) -> Iterator[Frame]:
    """A frame of groups × classes for each round; `known` are the accuracies of each group's runs."""
    runs = [run for group in groups for run in known[group.id]]
    classes = sorted({label for run in runs for values in run.values() for label in values})
    for round in sorted({round for run in runs for round in run}):
        values = np.full((len(groups), len(classes)), np.nan)
        for index, group in enumerate(groups):
            seen = [_line(run[round], classes) for run in known[group.id] if round in run]
            if seen:
                values[index] = mean_of_known(np.array(seen), 0)
        labels, owners = tuple(group.label for group in groups), tuple(group.id for group in groups)
        yield Frame(str(round), labels, tuple(classes), values, owners=owners)


def _line(values: dict[int, float], classes: Sequence[int]) -> Floats:
    return np.array([values.get(label, np.nan) for label in classes])


def _row(group: RunGroup, runs: Sequence[ByRound], classes: Sequence[int | str]) -> Row:
    last = [run[max(run)] for run in runs]
    cells = []
    for label in classes:
        values = [accuracies[int(label)] for accuracies in last if int(label) in accuracies]
        cells.append(spread(values) if values else dash())
    return Row((Cell(group.label, group.label), *cells), (group.id,))
