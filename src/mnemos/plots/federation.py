"""The figure of a federation: how many classes its clients have, and how often a cohort holds each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from mnemos.data.partition import Floats
from mnemos.plots.style import COLOURS, Picture, headline, plain

_BINS = 20
_MOST_NAMED = 20
"""With more classes, their names wouldn't fit below the bars."""


def federation_figure(
    client_classes: Floats, class_coverage: Mapping[str, float], cohort: int, title: str
) -> Picture:
    """Left, how many clients have how many effective classes; right, how often a cohort holds each class.

    `client_classes`: exp(H(p_k)) of each client. `class_coverage`: by class, the probability that a cohort of
    `cohort` clients holds it.
    """
    figure = Picture(figsize=(9.5, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.3])
    _clients(left, client_classes, len(class_coverage))
    _classes(right, class_coverage)
    clients = f"{len(client_classes):,} client{'s' * (len(client_classes) != 1)}"
    headline(left, plain(title), f"{clients} · {np.mean(client_classes):.1f} effective classes on average")
    headline(right, "", f"a round takes {cohort:,} of them")
    return figure


def _clients(axes: Axes, values: Floats, classes: int) -> None:
    edges = np.linspace(1, max(2, classes), _BINS + 1)
    axes.hist(np.clip(values, edges[0], edges[-1]), bins=list(edges), color=COLOURS[0], edgecolor="white")
    axes.axvline(float(np.mean(values)), color=COLOURS[5], linewidth=1.4)
    axes.set(xlabel=f"effective classes, of {classes} (line: the mean)", ylabel="clients")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    _bare(axes)


def _classes(axes: Axes, coverage: Mapping[str, float]) -> None:
    places = range(len(coverage))
    axes.bar(places, [100 * share for share in coverage.values()], color=COLOURS[2])
    if len(coverage) <= _MOST_NAMED:
        names = [plain(name, 12) for name in coverage]
        turned = max(map(len, names)) > 3
        axes.set_xticks(places, names, rotation=90 if turned else 0)
    axes.set(xlabel="class", ylabel="rounds that see it, %", ylim=(0, 104))
    _bare(axes)


def _bare(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.grid(axis="y", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
