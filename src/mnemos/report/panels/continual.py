"""The panel of continual learning: accuracy, forgetting and transfer of tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import pandas as pd

from mnemos.data.partition import Floats, Ints
from mnemos.report.average import mean_curve, mean_of_known
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
    Series,
    Table,
    View,
    spread,
    whole,
)
from mnemos.report.groups import RunGroup
from mnemos.report.panel import Panel, panels
from mnemos.runs.task_course import SUMMARY, Course

_LABELS = {
    "average_accuracy": "average accuracy",
    "forgetting_best": "best − last",
    "forgetting_first": "first − last",
    "forgetting_diagonal": "diagonal − last",
    "backward_transfer": "BWT",
    "backward_transfer_over_time": "BWT over time",
    "forward_transfer": "FWT",
    "learning_area": "learning area",
    "curve_area": "curve area",
}
_CURVES = {
    "average_accuracy": "average accuracy",
    "discovered_accuracy": "accuracy on discovered classes",
    "all_classes_accuracy": "accuracy on all classes",
    "forgetting_best": "forgetting, best − last",
    "forgetting_first": "forgetting, first − last",
    "forgetting_diagonal": "forgetting, diagonal − last",
}
_OVERALL = ("discovered_accuracy", "all_classes_accuracy")
_MOST_COLUMNS = 60
"""The most evaluations in a map of tasks × rounds."""

Known = Sequence[tuple[RunGroup, list[Course]]]


@panels.register("continual")
class ContinualPanel(Panel):
    """Average accuracy, forgetting and transfer of tasks (measure `continual`)."""

    title: ClassVar[str] = "Continual learning"
    order: ClassVar[int] = 44

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """Two tables, curves by group and by task, and tasks × rounds."""
        known = [(group, list(_courses(group))) for group in groups]
        known = [(group, courses) for group, courses in known if courses]
        if not known:
            return
        yield _table(known)
        yield _clients(known)
        yield Lines(
            id="continual",
            title="Accuracy and forgetting of tasks over rounds",
            text="At each evaluation: mean accuracy over the tasks discovered so far, accuracy on the "
            "samples of discovered and of all classes, and what is forgotten of tasks that some client has "
            "left. Mean over seeds in a band of one standard deviation.",
            x="round",
            views=tuple(_over_rounds(known, name, label) for name, label in _CURVES.items()),
        )
        yield Lines(
            id="continual-tasks",
            title="Accuracy on each task over rounds",
            text="Accuracy of the global model on each task's samples when it answers with any discovered "
            "class, from the task's discovery on; or when it answers with the task's own classes alone. Mean "
            "over seeds in a band of one standard deviation.",
            x="round",
            views=tuple(view for group, courses in known for view in _by_task(group, courses)),
        )
        yield HeatMaps(
            id="continual-map",
            title="Tasks × rounds",
            text="Accuracy of the global model on each task (row) after each evaluated round (column), mean "
            "over seeds; empty before the task was discovered.",
            note=f"At most {_MOST_COLUMNS} evaluations are shown, evenly spread."
            if any(len(course.rounds) > _MOST_COLUMNS for _, courses in known for course in courses)
            else "",
            choice="group",
            maps=(Map("Accuracy", "value", "task", "round", "accuracy"),),
            items=tuple(Item(group.label, (_map(courses),), (group.id,)) for group, courses in known),
            frame="up to round",
        )


def _courses(group: RunGroup) -> Iterator[Course]:
    """The courses of the seeds that converged."""
    for reading in group.readings:
        course = None if reading.diverged else Course.read(reading.of)
        if course is not None:
            yield course


def _table(known: Known) -> Table:
    return Table(
        id="continual-table",
        title="Average accuracy, forgetting and transfer",
        text="Of each group at the last evaluation, mean ± standard deviation over seeds: accuracy on "
        "discovered and on all classes; average accuracy over tasks; forgetting as best, first and diagonal "
        "(when clients left the task) accuracy minus the last; backward transfer (BWT) and forward transfer "
        "(FWT); and areas under curves. Each heading explains its formula.",
        note="Positive forgetting is lost accuracy. A dash: nothing to compare, such as FWT where every task "
        "was discovered before the first evaluation.",
        columns=(
            Column("group"),
            *(Column(_CURVES[name].removeprefix("accuracy on "), "number") for name in _OVERALL),
            *_columns(),
            Column("seeds", "number"),
        ),
        rows=tuple(
            Row(
                (
                    Cell(group.label, group.label),
                    *(spread([float(c.by_round[name].iloc[-1]) for c in courses]) for name in _OVERALL),
                    *_cells([course.summary for course in courses]),
                    whole(len(courses)),
                ),
                (group.id,),
            )
            for group, courses in known
        ),
    )


def _clients(known: Known) -> Table:
    return Table(
        id="continual-clients",
        title="The same per client",
        text="For each client, only its own tasks count, from when it began to when it left them: means "
        "over clients, mean ± standard deviation over seeds.",
        note="A client's FWT is what the model knew of a task before the client began it, possibly learnt "
        "from other clients.",
        columns=(Column("group"), *_columns(), Column("clients", "number")),
        rows=tuple(
            Row(
                (
                    Cell(group.label, group.label),
                    *_cells([course.by_client.mean() for course in courses]),
                    whole(len(courses[0].clients)),
                ),
                (group.id,),
            )
            for group, courses in known
        ),
    )


def _columns() -> Iterator[Column]:
    for name, help in SUMMARY.items():
        yield Column(_LABELS[name], "number", help)


def _cells(summaries: Sequence[dict[str, float] | pd.Series]) -> Iterator[Cell]:
    for name in SUMMARY:
        yield spread([float(summary[name]) for summary in summaries])


def _over_rounds(known: Known, name: str, label: str) -> View:
    series = []
    for group, courses in known:
        points = mean_curve(_finite((c.rounds, c.by_round[name].to_numpy()) for c in courses))
        if points is not None:
            series.append(Series(group.label, *points, groups=(group.id,), style=group.id))
    return View(label, label, tuple(series), percent=True)


def _by_task(group: RunGroup, courses: Sequence[Course]) -> Iterator[View]:
    """Two views of a group, with a curve for each task: among all discovered classes, and among its own."""
    for ending, of in (("", _accuracy), (", among the task's own classes", _aware)):
        series = []
        for task in sorted({task for course in courses for task in course.tasks.tolist()}):
            points = mean_curve(_finite(of(course, task) for course in courses if task in course.tasks))
            if points is not None:
                series.append(Series(f"task {task}", *points, groups=(group.id,), style=task))
        yield View(f"{group.label}{ending}", "accuracy on the task", tuple(series), percent=True)


def _accuracy(course: Course, task: int) -> tuple[Ints, Floats]:
    return course.rounds, course.accuracy[:, int(np.searchsorted(course.tasks, task))]


def _aware(course: Course, task: int) -> tuple[Ints, Floats]:
    return np.array([0, *course.rounds]), course.aware[:, int(np.searchsorted(course.tasks, task))]


def _finite(curves: Iterator[tuple[Ints, Floats]]) -> list[tuple[Ints, Floats]]:
    """The curves without their NaN values, and without those that have nothing else."""
    known = [(x[np.isfinite(y)], y[np.isfinite(y)]) for x, y in curves]
    return [(x, y) for x, y in known if len(x)]


def _map(courses: Sequence[Course]) -> Frame:
    """The accuracy on tasks (rows) at evaluated rounds (columns), mean over a group's runs."""
    rounds = np.unique(np.concatenate([course.rounds for course in courses]))
    tasks = np.unique(np.concatenate([course.tasks for course in courses]))
    if len(rounds) > _MOST_COLUMNS:
        rounds = rounds[np.linspace(0, len(rounds) - 1, _MOST_COLUMNS).round().astype(int)]
    values = np.full((len(courses), len(tasks), len(rounds)), np.nan)
    for index, course in enumerate(courses):
        there = np.isin(course.rounds, rounds)
        columns = np.searchsorted(rounds, course.rounds[there])
        values[index][np.ix_(np.searchsorted(tasks, course.tasks), columns)] = course.accuracy[there].T
    names = tuple(tasks.tolist()), tuple(rounds.tolist())
    return Frame(str(rounds[-1]), *names, mean_of_known(values, 0))
