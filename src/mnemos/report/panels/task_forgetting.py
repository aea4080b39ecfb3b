"""Whose updates made the model forget which task."""

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
from mnemos.report.groups import Group
from mnemos.report.panel import Panel, panels
from mnemos.report.panels.curves import over_rounds
from mnemos.report.reading import Reading

_MOST_CLIENTS = 40
"""Clients that a map of means has room for."""
_PAIRS = 5
"""Of each group in the table."""


@panels.register("task-forgetting")
class TaskForgetting(Panel):
    """What clients' updates lost of each task (`task-forgetting`)."""

    title: ClassVar[str] = "Forgetting of tasks by client"
    order: ClassVar[int] = 46

    def blocks(self, groups: Sequence[Group]) -> Iterator[Block]:
        """Clients × tasks, in a round and on average; the worst pairs; and the mean over rounds."""
        known = [(group, one, lost) for group in groups for one in group.readings if len(lost := _lost(one))]
        if not known:
            return
        view = over_rounds(groups, "task_forgetting", "forgetting of other tasks", percent=True)
        if view.series:
            yield Lines(
                id="task-forgetting",
                title="What an update loses of other tasks",
                text="Accuracy that a client's local training loses of the discovered tasks it isn't at: "
                "mean over the round's clients, then over tasks. Mean over seeds in a band of one standard "
                "deviation.",
                x="round",
                views=(view,),
            )
        peaks = (float(lost["lost"].abs().max()) for *_, lost in known)
        most = max(filter(math.isfinite, peaks), default=0.0)
        # The next tenth, for round numbers at the bar.
        most = max(0.1, math.ceil(min(most, 1.0) * 10 - 1e-6) / 10)
        scale = Map("Forgotten", "drop", "model of client i", "task j", "D", most)
        means = [(group, one, lost.groupby(["model", "task"])["lost"].mean()) for group, one, lost in known]
        yield HeatMaps(
            id="task-forgetting-mean",
            title="Clients × tasks, mean over rounds",
            text="Dᵢⱼ, the accuracy on task j (column) that local training at client i (row) lost, mean over "
            "the rounds in which the client took part and it was measured. Red is forgotten, blue is gained, "
            "as a rule on the task the client is at.",
            note=f"Of a run with more than {_MOST_CLIENTS} clients, those whose updates lost most."
            if any(lost["model"].nunique() > _MOST_CLIENTS for *_, lost in known)
            else "",
            choice="run",
            maps=(scale,),
            items=tuple(
                Item(_name(group, one), (_frame("measured rounds", _worst(mean)),), (group.id,))
                for group, one, mean in means
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
                Item(_name(group, one), tuple(_frames(lost)), (group.id,)) for group, one, lost in known
            ),
        )
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


def _lost(one: Reading) -> pd.DataFrame:
    """Rows of round, model, task and `lost`: accuracy before the client's training minus after it."""
    before, after = one.of("before_accuracy", "task"), one.of("after_accuracy", "model", "task")
    if not len(before) or not len(after) or one.diverged:
        return pd.DataFrame()
    start = pd.DataFrame({"round": before.round, "task": before.by["task"], "before": before.value})
    frame = pd.DataFrame({"round": after.round, **after.by, "after": after.value})
    frame = frame.merge(start, on=["round", "task"])  # of a round that is being written, what is there
    return frame.assign(lost=frame["before"] - frame["after"])


def _worst(mean: pd.Series) -> pd.Series:
    """Of the clients that lost most over all tasks."""
    clients = mean.groupby("model").mean().nlargest(_MOST_CLIENTS).index
    return mean[mean.index.get_level_values("model").isin(clients)]


def _frames(lost: pd.DataFrame) -> Iterator[Frame]:
    for number, rows in lost.groupby("round"):
        yield _frame(str(number), rows.set_index(["model", "task"])["lost"])


def _frame(label: str, lost: pd.Series) -> Frame:
    table = lost.unstack("task").sort_index().sort_index(axis=1)
    rows, columns = tuple(map(int, table.index)), tuple(map(int, table.columns))
    return Frame(label, rows, columns, table.to_numpy(np.float64))


def _rows(group: Group, lost: pd.DataFrame) -> Iterator[Row]:
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


def _name(group: Group, one: Reading) -> str:
    return f"{group.label}, seed {one.seed}"
