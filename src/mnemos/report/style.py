"""How figures look."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mnemos.errors import ConfigError

COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#5D5D5D", "#B8A100"]
"""Distinguishable for people who can't tell red from green (after Okabe and Ito, 2008)."""


def plain(name: str, most: int = 60) -> str:
    """A name as a label: matplotlib reads $ as mathematics and hides what starts with an underscore."""
    short = name if len(name) <= most else name[: most - 1] + "…"
    return (" " if short.startswith("_") else "") + short.replace("$", r"\$")


def finish(figure: Figure, axes: Axes) -> None:
    """What all figures of curves over whole numbers have: a grid, sensible ticks, and a legend beneath."""
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    places = {float(x) for line in axes.lines for x in np.asarray(line.get_xdata())}
    if len(places) == 1:  # no room to make ticks of
        axes.set_xticks(list(places))
        axes.set_xlim(min(places) - 1, max(places) + 1)
    elif axes.get_xscale() == "linear":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        # Outside: inside it would cover curves.
        longest = max(map(len, labels))
        columns = max(1, min(len(labels), int(11 * figure.get_figwidth()) // (longest + 8)))
        figure.legend(
            handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize="small"
        )


def save(figure: Figure, path: Path) -> Path:
    """Write a figure; the suffix (png, pdf, svg) says how."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=160)
    except OSError as error:
        raise ConfigError(f"{path}: the figure can't be written ({error.strerror})") from None
    return path


def headline(axes: Axes, title: str, text: str) -> None:
    """A title over a figure, and a line of facts below it."""
    axes.set_title(title, loc="left", pad=22, fontsize=12, fontweight="bold")
    axes.annotate(
        text,
        (0, 1),
        xytext=(0, 8),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=9,
        color="0.35",
    )
