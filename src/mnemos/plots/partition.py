"""A partition in numbers and as a figure: how many samples of each label clients hold."""

from __future__ import annotations

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

from mnemos.data.partition import Assignment, Floats, Ints, label_distances
from mnemos.errors import ConfigError, allowed
from mnemos.plots.style import Picture, headline, plain, save

_COLOURS = (
    "#332288", "#ddcc77", "#44aa99", "#882255", "#88ccee",
    "#117733", "#cc6677", "#999933", "#aa4499", "#cccccc",
)  # fmt: skip
"""Paul Tol's muted scheme and grey, ordered so that consecutive colours differ in lightness too."""

_MOST_NAMED = 20
"""With more classes there is a colour bar instead of a legend."""

_FORMATS = (".pdf", ".png", ".svg")


def label_counts(assignment: Assignment, labels: Ints, classes: int, clients: Ints) -> Ints:
    """The number of samples of each label that the given clients hold [clients, classes]."""
    sizes = assignment.sizes[clients]
    starts = np.cumsum(sizes) - sizes
    held = np.repeat(assignment.offsets[clients] - starts, sizes) + np.arange(sizes.sum())
    cells = np.repeat(np.arange(len(clients)) * classes, sizes) + labels[assignment.order[held]]
    return np.bincount(cells, minlength=len(clients) * classes).reshape(len(clients), classes)


def summarise(assignment: Assignment, labels: Ints) -> dict[str, int | float]:
    """A partition in numbers.

    `distance_mean` and `distance_max` are of the total-variation distances ½ Σ_c |p_k(c) − p(c)| between
    each client's label distribution and that of all clients' samples together: 0 when all are alike, near
    1 when each holds labels of its own. Empty clients count in `empty` and the sizes, not in the rest.
    """
    sizes = assignment.sizes
    kinds, distances = label_distances(labels, assignment)
    full = sizes > 0
    return {
        "clients": assignment.clients,
        "samples": len(assignment.order),
        "left_out": len(labels) - len(np.unique(assignment.order)),
        "training": int(assignment.train_sizes().sum()),
        "size_min": int(sizes.min()),
        "size_median": float(np.median(sizes)),
        "size_max": int(sizes.max()),
        "empty": int(np.count_nonzero(~full)),
        "labels_mean": _mean(kinds[full]),
        "one_label": int(np.count_nonzero(kinds == 1)),
        "distance_mean": _mean(distances[full]),
        "distance_max": float(distances[full].max(initial=0.0)),
    }


def partition_figure(
    assignment: Assignment,
    labels: Ints,
    classes: int | Sequence[str],
    clients: int = 30,
    title: str = "Who holds what",
) -> Picture:
    """A bar for each client (at most `clients` of them, evenly spread), stacked by label."""
    names = [str(c) for c in range(classes)] if isinstance(classes, int) else [plain(c, 24) for c in classes]
    bars = max(1, min(clients, assignment.clients))
    shown = np.linspace(0, assignment.clients - 1, bars).astype(np.int64)
    table = label_counts(assignment, labels, len(names), shown)
    figure = Picture(figsize=(min(max(6.4, 2.6 + 0.25 * bars), 24.0), 4.2), layout="constrained")
    axes = figure.add_subplot()
    _bars(axes, table)
    _decorate(axes, shown)
    if assignment.noise is not None:
        _noise(axes, assignment.noise[shown])
    if len(names) <= _MOST_NAMED:
        _legend(figure, names)
    else:
        _colour_bar(figure, axes, names)
    headline(axes, title, _caption(assignment, labels, bars))
    return figure


def draw_partition(
    assignment: Assignment,
    labels: Ints,
    classes: int | Sequence[str],
    path: Path,
    clients: int = 30,
    title: str = "Who holds what",
) -> Path:
    """Write the figure as PNG, PDF or SVG, by the path's suffix."""
    if path.suffix.lower() not in _FORMATS:
        raise ConfigError(f"a figure can't be written to '{path.name}'; {allowed(_FORMATS)}")
    return save(partition_figure(assignment, labels, classes, clients, title), path)


def palette(classes: int) -> list[str]:
    """A colour for each class, which people who can't tell red from green can tell apart.

    Up to 10 classes have distinct colours; up to 20, the same colours again, to be hatched; more have colours
    of the scale viridis in order.
    """
    if classes <= _MOST_NAMED:
        return [_COLOURS[c % len(_COLOURS)] for c in range(classes)]
    walk = matplotlib.colormaps["viridis"](np.linspace(0, 1, classes))
    return [to_hex(colour) for colour in walk]


def hatch(label: int, classes: int) -> str:
    """The hatching of a label, which tells labels of the same colour apart."""
    return "////" if len(_COLOURS) <= label < classes <= _MOST_NAMED else ""


def _bars(axes: Axes, table: Ints) -> None:
    classes = table.shape[1]
    ground = np.cumsum(table, axis=1) - table
    line = 0.5 if classes <= _MOST_NAMED else 0.2
    for label, colour in enumerate(palette(classes)):
        rows = np.flatnonzero(table[:, label])
        if len(rows):
            axes.bar(
                rows,
                table[rows, label],
                bottom=ground[rows, label],
                width=0.86,
                color=colour,
                edgecolor="white",
                linewidth=line,
                hatch=hatch(label, classes),
            )


def _decorate(axes: Axes, shown: Ints) -> None:
    step = -(-len(shown) // 40)
    axes.set_xticks(range(0, len(shown), step), [str(client) for client in shown[::step]])
    if int(shown[-1]) > 99:
        axes.tick_params(axis="x", rotation=90)
    axes.tick_params(labelsize=8, length=0)
    axes.set_xlim(-0.7, len(shown) - 0.3)
    axes.set_xlabel("client")
    axes.set_ylabel("samples")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.grid(axis="y", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _noise(axes: Axes, levels: Floats) -> None:
    right = axes.twinx()
    right.plot(np.arange(len(levels)), levels, color="black", marker="o", markersize=3, linewidth=1)
    right.set_ylabel("noise σ (line)")
    right.set_ylim(bottom=0)
    right.tick_params(labelsize=8, length=0)
    right.spines[["top", "right", "left"]].set_visible(False)


def _legend(figure: Figure, names: Sequence[str]) -> None:
    handles = [
        Patch(facecolor=colour, edgecolor="white", linewidth=0.5, hatch=hatch(label, len(names)), label=name)
        for label, (colour, name) in enumerate(zip(palette(len(names)), names, strict=True))
    ]
    # The last label comes first, as in the stacked bars from top to bottom.
    figure.legend(
        handles=handles[::-1],
        loc="outside right center",
        frameon=False,
        fontsize=8,
        title="label",
        title_fontsize=8,
    )


def _colour_bar(figure: Figure, axes: Axes, names: Sequence[str]) -> None:
    count = len(names)
    scale = ScalarMappable(BoundaryNorm(np.arange(count + 1) - 0.5, count), ListedColormap(palette(count)))
    bar = figure.colorbar(scale, ax=axes, pad=0.02, aspect=30)
    ticks = range(0, count, next(step for step in (2, 5, 10, 20, 50, 100, count) if count <= 12 * step))
    bar.set_ticks([float(tick) for tick in ticks], labels=[names[tick] for tick in ticks])
    bar.minorticks_off()
    bar.ax.tick_params(labelsize=8, length=0)
    bar.ax.set_title("label", fontsize=8)
    bar.outline.set_visible(False)


def _caption(assignment: Assignment, labels: Ints, shown: int) -> str:
    facts = summarise(assignment, labels)
    some = f"{shown} of " if shown < assignment.clients else ""
    return (
        f"{some}{facts['clients']:,} clients · {facts['samples']:,} samples · "
        f"{facts['labels_mean']:.1f} labels a client · total variation from all {facts['distance_mean']:.2f}"
    )


def _mean(values: Ints | Floats) -> float:
    return float(values.mean()) if len(values) else 0.0
