"""The panel of how much of each task clients' updates make the model forget."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import pandas as pd

from mnemos.report.blocks import (
    Block,
    Cell,
    Column,
    Frame,
    HeatMaps,
    Item,
    Lines,
    Map,
    Row,
    Table,
    spread,
    whole,
)
from mnemos.report.groups import RunGroup
from mnemos.report.panel import Panel, panels
from mnemos.report.panels.curves import over_rounds
from mnemos.report.reading import RunReading

_MOST_CLIENTS = 40
"""The most clients in a map of means."""
_PAIRS = 5
"""The number of pairs of a client and a task that the table has of each group."""

Lost = list[tuple[RunGroup, RunReading, pd.DataFrame]]
"""The lost accuracies of each run, as `_lost` makes them, with the run and its group."""


@panels.register("task-forgetting")
class TaskForgettingPanel(Panel):
    """The accuracy that clients' updates lose on each task (measure `task-forgetting`)."""

    title: ClassVar[str] = "Forgetting of tasks by client"
    order: ClassVar[int] = 46

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """Forgetting over rounds; clients × tasks on average and in each round; and the worst pairs."""
        known = [
            (group, reading, lost)
            for group in groups
            for reading in group.readings
            if len(lost := _lost(reading))
        ]
        if not known:
            return
        view = over_rounds(groups, "task_forgetting", "forgetting of other tasks", percent=True)
        if view.series:
            yield Lines(
                id="task-forgetting",
                title="Accuracy that updates lose on other tasks",
                text="Accuracy that a client's local training loses on discovered tasks other than its own: "
                "mean over the round's clients, then over tasks. Mean over seeds in a band of one standard "
                "deviation.",
                x="round",
                views=(view,),
            )
        yield from _maps(known)
        yield Table(
            id="task-forgetting-worst",
            title="Who made the model forget what",
            text=f"The {_PAIRS} pairs of a client and a task with the largest mean loss of accuracy, of each "
            "group's first seed, with the smallest and largest loss in a round.",
            columns=(
                Column("group"),
                Column("client", "number"),
                Column("task", "number"),
                Column("lost, mean", "number"),
                Column("least", "number"),
                Column("most", "number"),
                Column("rounds", "number", "in which it was measured"),
            ),
            rows=tuple(
                row
                for group in groups
                for lost in [frame for other, _, frame in known if other.id == group.id][:1]
                for row in _rows(group, lost)
            ),
        )


def _maps(known: Lost) -> Iterator[HeatMaps]:
    """Heat-maps of clients × tasks: on average, and in each measured round."""
    peaks = (float(lost["lost"].abs().max()) for *_, lost in known)
    most = max(filter(math.isfinite, peaks), default=0.0)
    # Rounded up to a tenth, for round numbers at the colour bar.
    most = max(0.1, math.ceil(min(most, 1.0) * 10 - 1e-6) / 10)
    scale = Map("Forgotten", "drop", "model of client i", "task j", "D", most)
    means = [
        (group, reading, lost.groupby(["model", "task"])["lost"].mean()) for group, reading, lost in known
    ]
    yield HeatMaps(
        id="task-forgetting-mean",
        title="Clients × tasks, mean over rounds",
        text="Dᵢⱼ, the accuracy on task j (column) that local training at client i (row) lost, mean over "
        "the rounds in which the client took part and it was measured. Red is forgotten, blue is gained, "
        "as a rule on the task the client is at.",
        note=f"For a run with more than {_MOST_CLIENTS} clients, those whose updates lost most."
        if any(lost["model"].nunique() > _MOST_CLIENTS for *_, lost in known)
        else "",
        choice="run",
        maps=(scale,),
        items=tuple(
            Item(_name(group, reading), (_frame("measured rounds", _worst(mean)),), (group.id,))
            for group, reading, mean in means
        ),
        frame="mean over",
    )
    yield HeatMaps(
        id="task-forgetting-maps",
        title="Clients × tasks, in a round",
        text="The same in each measured round, of the round's clients.",
        choice="run",
        maps=(scale,),
        items=tuple(
            Item(_name(group, reading), tuple(_frames(lost)), (group.id,)) for group, reading, lost in known
        ),
    )


def _lost(reading: RunReading) -> pd.DataFrame:
    """Rows of round, model, task and `lost`: accuracy before the client's training minus after it."""
    before, after = reading.of("before_accuracy", "task"), reading.of("after_accuracy", "model", "task")
    if not len(before) or not len(after) or reading.diverged:
        return pd.DataFrame()
    start = pd.DataFrame({"round": before.round, "task": before.by["task"], "before": before.value})
    frame = pd.DataFrame({"round": after.round, **after.by, "after": after.value})
    frame = frame.merge(start, on=["round", "task"])  # a round may be incomplete while it is written
    return frame.assign(lost=frame["before"] - frame["after"])


def _worst(mean: pd.Series) -> pd.Series:
    """The entries of `mean`, by client and task, of the clients that lost most over all tasks."""
    clients = mean.groupby("model").mean().nlargest(_MOST_CLIENTS).index
    return mean[mean.index.get_level_values("model").isin(clients)]


def _frames(lost: pd.DataFrame) -> Iterator[Frame]:
    """A frame for each measured round."""
    for round, rows in lost.groupby("round"):
        yield _frame(str(round), rows.set_index(["model", "task"])["lost"])


def _frame(label: str, lost: pd.Series) -> Frame:
    """A frame of clients (rows) × tasks (columns)."""
    table = lost.unstack("task").sort_index().sort_index(axis=1)
    rows, columns = tuple(map(int, table.index)), tuple(map(int, table.columns))
    return Frame(label, rows, columns, table.to_numpy(np.float64))


def _rows(group: RunGroup, lost: pd.DataFrame) -> Iterator[Row]:
    """The table's rows of a group: the pairs of client and task with the largest mean loss."""
    pairs = lost.groupby(["model", "task"])["lost"].agg(["mean", "min", "max", "count"])
    for row in pairs.nlargest(_PAIRS, "mean").reset_index().to_dict("records"):
        cells = (
            Cell(group.label, group.label),
            whole(int(row["model"])),
            whole(int(row["task"])),
            *(spread([float(row[name])]) for name in ("mean", "min", "max")),
            whole(int(row["count"])),
        )
        yield Row(cells, (group.id,))


def _name(group: RunGroup, reading: RunReading) -> str:
    return f"{group.label}, seed {reading.seed}"
