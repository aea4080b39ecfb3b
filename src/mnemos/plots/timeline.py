"""A stream of tasks in numbers and as a figure: the task of each client in each round."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from mnemos.data.partition import Ints
from mnemos.data.stream import Flow
from mnemos.plots.partition import palette
from mnemos.plots.style import Picture, headline, plain, save

_DISTINCT = 10
"""With more tasks, colours are those of the scale viridis in order."""
_WRITTEN_OUT = 3
"""With more classes, a task is named by the numbers of its classes."""


def shown_clients(flow: Flow, most: int) -> Ints:
    """At most `most` clients, evenly spread over all."""
    clients = flow.assignment.clients
    return np.linspace(0, clients - 1, max(1, min(most, clients))).astype(np.int64)


def summarise_tasks(flow: Flow, clients: int = 1000) -> dict[str, int | float | None]:
    """A stream of tasks in numbers.

    `without_samples` is the number of pairs of a client and a task of which it has no training samples;
    `at_once` is the number of different tasks that clients are at, mean over the rounds; `all_discovered` is
    the round by which every task has been trained on by some client; `finished` is the share of clients that
    reach their last task. `at_once` and `finished` are computed for at most `clients` clients.
    """
    loads, tasks, rounds = flow.loads(), len(flow.tasks), flow.setting.rounds
    some = shown_clients(flow, clients)
    now = np.sort(flow.timeline(some), axis=0)
    found = bisect_left(range(rounds + 1), tasks, key=lambda round: len(flow.discovered(round)))
    last = [len(flow.reached(client, rounds)) == tasks for client in some.tolist()]
    return {
        "clients": flow.assignment.clients,
        "rounds": rounds,
        "tasks": tasks,
        "classes_min": min(map(len, flow.tasks)),
        "classes_max": max(map(len, flow.tasks)),
        "samples_median": float(np.median(loads)),
        "without_samples": int(np.count_nonzero(loads == 0)),
        "at_once": float(1 + np.count_nonzero(np.diff(now, axis=0), axis=0).mean()),
        "all_discovered": found if found <= rounds else None,
        "finished": float(np.mean(last)),
    }


def task_names(flow: Flow, classes: Sequence[str]) -> list[str]:
    """A name for each task, from its number and classes."""
    return [f"{index}: {_members(members, classes)}" for index, members in enumerate(flow.tasks)]


def _members(members: Ints, classes: Sequence[str]) -> str:
    if len(members) <= _WRITTEN_OUT:
        return ", ".join(classes[member] for member in members)
    row = np.array_equal(members, np.arange(members[0], members[0] + len(members)))
    return f"classes {members[0]}–{members[-1]}" if row else f"{len(members)} classes"


def timeline_figure(
    flow: Flow, classes: Sequence[str], clients: int = 50, title: str = "Who is at which task"
) -> Picture:
    """A row for each client (at most `clients` of them, evenly spread), coloured by task, round by round."""
    shown = shown_clients(flow, clients)
    high = min(max(2.8, 1.5 + 0.13 * len(shown)), 12.0)
    figure = Picture(figsize=(9.0, high), layout="constrained")
    axes = figure.add_subplot()
    draw_rows(axes, flow.timeline(shown), shown.tolist(), len(flow.tasks))
    explain_tasks(figure, axes, task_names(flow, classes))
    facts = summarise_tasks(flow)
    some = f"{len(shown)} of " if len(shown) < flow.assignment.clients else ""
    headline(
        axes,
        title,
        f"{some}{facts['clients']:,} clients · {facts['tasks']} tasks in {facts['rounds']:,} rounds · "
        f"{facts['at_once']:.1f} different tasks at a time · median {facts['samples_median']:g} samples",
    )
    return figure


def draw_timeline(flow: Flow, classes: Sequence[str], path: Path, clients: int = 50) -> Path:
    """Write the figure as PNG, PDF or SVG, by the path's suffix."""
    return save(timeline_figure(flow, classes, clients), path)


def draw_rows(axes: Axes, table: Ints, names: Sequence[object], tasks: int) -> None:
    """Draw a table of tasks [clients, rounds] as colours; `names` are the clients'."""
    rows, rounds = table.shape
    axes.imshow(
        table,
        cmap=ListedColormap(shades(tasks)),
        norm=BoundaryNorm(np.arange(tasks + 1) - 0.5, tasks),
        aspect="auto",
        interpolation="nearest",
        extent=(0.5, rounds + 0.5, rows - 0.5, -0.5),
    )
    for row in range(1, rows if rows <= 60 else 0):
        axes.axhline(row - 0.5, color="white", linewidth=0.6)
    step = -(-rows // 40)
    axes.set_yticks(range(0, rows, step), [str(name) for name in names[::step]])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="round", ylabel="client")
    axes.tick_params(labelsize=8, length=0)
    axes.spines[:].set_visible(False)


def explain_tasks(figure: Figure, axes: Axes, names: Sequence[str]) -> None:
    """Draw a legend, or a colour bar if there are too many tasks for one."""
    count = len(names)
    if count > _DISTINCT:
        norm = BoundaryNorm(np.arange(count + 1) - 0.5, count)
        bar = figure.colorbar(ScalarMappable(norm, ListedColormap(shades(count))), ax=axes, pad=0.02)
        bar.set_ticks([0.0, float(count - 1)], labels=[plain(names[0], 24), plain(names[-1], 24)])
        bar.minorticks_off()
        bar.ax.tick_params(labelsize=8, length=0)
        bar.ax.set_title("task", fontsize=8)
        bar.outline.set_visible(False)
        return
    handles = [
        Patch(facecolor=shade, label=plain(name, 30))
        for shade, name in zip(shades(count), names, strict=True)
    ]
    figure.legend(
        handles=handles,
        loc="outside right center",
        frameon=False,
        fontsize=8,
        title="task",
        title_fontsize=8,
    )


def shades(tasks: int) -> list[str]:
    """A colour for each task."""
    if tasks <= _DISTINCT:
        return palette(tasks)
    return [to_hex(colour) for colour in matplotlib.colormaps["viridis"](np.linspace(0, 1, tasks))]
