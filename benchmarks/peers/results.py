"""What a contest found, as a table, as JSON and as a figure."""

from __future__ import annotations

import os
import platform
from datetime import date
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from contest import Contest, Entry, middle
from mnemos.common.cores import cores

REFERENCE = "mnemos"


def table(letter: str, contest: Contest) -> str:
    """One row for each contender; times as ratios to Mnemos's in the same turn."""
    reference = contest.entries.get(REFERENCE, Entry())
    lines = [
        f"({letter}) {contest.work.title}",
        f"{'':14}{'s a round':>10}{'ratio':>8}{'quartiles':>16}{'first':>8}{'peak MB':>9}{'loss':>8}",
    ]
    for name, entry in contest.entries.items():
        if not entry.seconds:
            lines.append(f"{name:14}  {entry.reason}")
            continue
        cells = f"{name:14}{middle(entry.seconds)[0]:10.3f}"
        ratios = entry.ratios(reference)
        if ratios:
            median, lower, upper = middle(ratios)
            cells += f"{median:8.2f}{f'{lower:.2f} to {upper:.2f}':>16}"
        else:
            cells += f"{'–':>8}{'–':>16}"
        cells += f"{_number(entry.first, 1):>8}{_number(entry.peak, 0):>9}{_number(entry.loss, 3):>8}"
        lines.append("  ".join(filter(None, [cells, entry.note, entry.reason])))
    return "\n".join(lines) + "\n"


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def record(contests: dict[str, Contest], facts: dict[str, Any]) -> dict[str, Any]:
    """Everything that was measured."""
    works = {}
    for letter, contest in contests.items():
        reference = contest.entries.get(REFERENCE, Entry())
        works[letter] = {
            "title": contest.work.title,
            "loss before": contest.initial,
            "tolerance": contest.work.tolerance,
            "contenders": {name: _entry(entry, reference) for name, entry in contest.entries.items()},
        }
    return {**facts, "works": works}


def _entry(entry: Entry, reference: Entry) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if entry.seconds:
        found["seconds"] = [round(value, 4) for value in entry.seconds]
        ratios = entry.ratios(reference)
        if ratios:
            found["ratio"], *found["quartiles"] = (round(value, 3) for value in middle(ratios))
        for key, value in (("first", entry.first), ("peak MB", entry.peak), ("loss", entry.loss)):
            if value is not None:
                found[key] = round(value, 4)
    return found | {key: text for key, text in (("note", entry.note), ("reason", entry.reason)) if text}


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "date": date.today().isoformat(),
        "cores": cores(),
        "processor": _processor(),
        "python": platform.python_version(),
        "capability": torch.backends.cpu.get_cpu_capability(),
    }


def load() -> float:
    """The mean number of processes that wanted a core in the last minute."""
    return round(os.getloadavg()[0], 1)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def figure(contests: dict[str, Contest], path: Path) -> None:
    """Medians and quartiles of the ratios, a panel for each work."""
    across = min(3, len(contests))
    down = -(-len(contests) // across)
    drawing = Figure(figsize=(3.4 * across, 2.6 * down), layout="tight")
    panels = drawing.subplots(down, across, squeeze=False).ravel()
    for axis in panels[len(contests) :]:
        axis.set_visible(False)
    for axis, (letter, contest) in zip(panels, contests.items(), strict=False):
        _panel(axis, contest)
        axis.set_title(f"({letter}) {contest.work.label}", fontsize=9)
    drawing.savefig(path, dpi=150)


def _panel(axis: Axes, contest: Contest) -> None:
    reference = contest.entries.get(REFERENCE, Entry())
    found = {name: entry.ratios(reference) for name, entry in contest.entries.items()}
    names = [name for name, ratios in found.items() if ratios]
    for row, name in enumerate(names):
        median, lower, upper = middle(found[name])
        colour = "tab:blue" if name == REFERENCE else "tab:gray"
        axis.errorbar(median, row, xerr=[[median - lower], [upper - median]], fmt="o", color=colour)
        axis.annotate(f"{median:.2g}", (median, row), (0, 4), textcoords="offset points", fontsize=7)
    axis.set_yticks(range(len(names)), [name.replace("_", " ") for name in names], fontsize=8)
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.axvline(1, color="black", linewidth=0.8)
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.xaxis.set_major_formatter("{x:g}")
    axis.margins(0.15, 0.15)
    axis.set_xlabel("time as a ratio to Mnemos's", fontsize=8)
