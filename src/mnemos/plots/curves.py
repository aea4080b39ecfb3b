"""Figures of curves over rounds, with the spread over seeds as a band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from mnemos.errors import ConfigError, allowed
from mnemos.plots.style import COLOURS, Picture, finish, plain, save
from mnemos.runs.run import Run
from mnemos.runs.store import overall

_LABELS = {"forgetting": "mean forgetting F"}
"""Labels of metrics whose names say too little."""


def curve(runs: Sequence[Run], name: str) -> pd.DataFrame:
    """Mean, standard deviation and number of runs of a metric of the whole federation, by round."""
    frames = [overall(run.metrics, name)[["round", "value"]] for run in runs]
    grouped = pd.concat(frames).groupby("round")["value"]
    return grouped.agg(["mean", "std", "count"]).fillna({"std": 0.0})


def line_style(index: int) -> tuple[str, str]:
    """Colour and dashes of a curve. There are 32 different pairs, and consecutive ones differ in both."""
    dashes = ("-", "--", "-.", ":")
    return COLOURS[index % len(COLOURS)], dashes[(index + index // len(COLOURS)) % len(dashes)]


def draw_curves(
    groups: Mapping[str, Sequence[Run]], path: Path, name: str = "validation_accuracy", title: str = ""
) -> Path:
    """Draw a line for each group of runs, the mean over seeds in a band of one standard deviation.

    `groups` are runs by label, `name` is the metric. Returns the path.
    """
    return save(curves_figure(groups, name, title), path)


def measured_name(runs: Sequence[Run], name: str | None) -> str:
    """The metric to draw: `name` or, if it is None, the accuracy that was measured, validation first.

    A ConfigError if the metric is in none of the runs.
    """
    known = {name for run in runs for name in overall(run.metrics)["name"]}
    wanted = ["validation_accuracy", "test_accuracy"] if name is None else [name]
    found = next((name for name in wanted if name in known), None)
    if found is None:
        raise ConfigError(f"found '{wanted[0]}', which was not measured; {allowed(sorted(known))}", "name")
    return found


def curves_figure(groups: Mapping[str, Sequence[Run]], name: str, title: str = "") -> Picture:
    """The figure of `draw_curves`."""
    figure = Picture(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for index, (label, runs) in enumerate(groups.items()):
        points = curve(runs, name)
        rounds = points.index.to_numpy(dtype=float)
        mean, spread = points["mean"].to_numpy(), points["std"].to_numpy()
        marker = "o" if len(points) <= 30 else ""  # one point alone makes no line
        colour, style = line_style(index)
        axes.plot(
            rounds, mean, style, color=colour, label=plain(label), linewidth=1.8, marker=marker, markersize=4
        )
        axes.fill_between(rounds, mean - spread, mean + spread, color=colour, alpha=0.18, linewidth=0)
    seeds = max(len(runs) for runs in groups.values())
    spread_note = f"\nmean ± std of {seeds} seeds" if seeds > 1 else ""
    axes.set(
        xlabel="round", ylabel=_LABELS.get(name, name.replace("_", " ")) + spread_note, title=plain(title)
    )
    finish(figure, axes)
    return figure
