"""The style that all figures share, and writing them to files."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from mnemos.errors import ConfigError

COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#5D5D5D", "#B8A100"]
"""Colours that people who can't tell red from green can tell apart (after Okabe and Ito, 2008)."""


class Picture(Figure):
    """A figure that notebooks show by themselves."""

    def save(self, path: Path | str) -> Path:
        """Write it as PNG, PDF or SVG, as the path's suffix says; returns the path."""
        return save(self, Path(path))

    def _repr_png_(self) -> bytes:
        with io.BytesIO() as file:
            self.savefig(file, format="png", dpi=100)
            return file.getvalue()


def plain(name: str, most: int = 60) -> str:
    """A name as a label of at most `most` characters.

    Matplotlib would read $ as mathematics and hide a label that starts with an underscore.
    """
    short = name if len(name) <= most else name[: most - 1] + "…"
    return (" " if short.startswith("_") else "") + short.replace("$", r"\$")


def finish(figure: Figure, axes: Axes) -> None:
    """Add what all figures of curves have: a grid, ticks at whole numbers, and a legend beneath."""
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    xs = {float(x) for line in axes.lines for x in np.asarray(line.get_xdata())}
    if len(xs) == 1:  # a single point leaves matplotlib no range for ticks
        axes.set_xticks(list(xs))
        axes.set_xlim(min(xs) - 1, max(xs) + 1)
    elif axes.get_xscale() == "linear":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        # The legend is outside, because inside it would cover curves.
        longest = max(map(len, labels))
        columns = max(1, min(len(labels), int(11 * figure.get_figwidth()) // (longest + 8)))
        figure.legend(
            handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize="small"
        )


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG, PDF or SVG, as the path's suffix says; returns the path."""
    # Labels may come from other people, and a matplotlibrc in the current folder could have LaTeX run them.
    for text in figure.findobj(Text):
        text.set_usetex(False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Type 42 fonts, as many publishers refuse matplotlib's default, Type 3.
        with matplotlib.rc_context({"text.usetex": False, "pdf.fonttype": 42}):
            figure.savefig(path, dpi=160)
    except OSError as error:
        raise ConfigError(f"{path}: the figure can't be written ({error.strerror})") from None
    return path


def headline(axes: Axes, title: str, text: str) -> None:
    """Add a title over a figure, and a line of text below the title."""
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
