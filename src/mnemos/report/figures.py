"""Drawing the blocks of a report as PNG and PDF, for papers and slides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial, singledispatch
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, PercentFormatter

from mnemos.common.files import write_atomically
from mnemos.plots.heatmap import HeatMap, Scale, draw_map, draw_scale
from mnemos.plots.partition import hatch, palette
from mnemos.plots.style import COLOURS, finish, plain, save
from mnemos.plots.timeline import draw_rows, explain_tasks
from mnemos.report.average import mean_of_known
from mnemos.report.blocks import (
    Bars,
    BarView,
    Block,
    Frame,
    HeatMaps,
    Item,
    Lines,
    Map,
    Strips,
    StripView,
    View,
)
from mnemos.report.paper import as_wide_as, captions, shrunk, sized

FORMATS = (".png", ".pdf")

_DASHES, _MARKERS = ("-", "--", "-.", ":"), ("o", "s", "^", "D")
_MOST_ITEMS = 12
"""The most items of a block of heat-maps that are drawn, each as a figure of its own."""
_MOST_BANDS = 12
"""With more curves, no bands are drawn, which would hide curves."""


def draw_figures(blocks: Sequence[Block], folder: Path, width: float | None = None) -> list[Path]:
    """Write every figure of a report as PNG and PDF, and figures.tex with their captions; returns the files.

    Figures are `width` inches wide; None: as wide as is usual for their kind.
    """
    written: dict[str, list[Path]] = {}
    told: list[tuple[str, str, str]] = []
    with as_wide_as(width):
        for block in blocks:
            for name, figure in figures_of(block):
                while name in written:  # labels may differ in characters that file names can't have
                    name += "-2"
                written[name] = [save(figure, folder / f"{name}{suffix}") for suffix in FORMATS]
                told.append((name, block.title, block.text))
    paths = [path for paths in written.values() for path in paths]
    if not told:
        return paths
    write_atomically(folder / "figures.tex", captions(told, width).encode())
    return [*paths, folder / "figures.tex"]


def not_drawn(blocks: Sequence[Block]) -> list[str]:
    """A sentence for each block of which some figures are left out."""
    return [
        f"left out: figures of {len(block.items) - len(drawn)} of {len(block.items)} heat-maps in "
        f"'{block.title}'; the page has them all"
        for block in blocks
        if isinstance(block, HeatMaps) and len(drawn := _drawn(block)) < len(block.items)
    ]


@singledispatch
def figures_of(_block: Block) -> Iterator[tuple[str, Figure]]:
    """The figures of a block, each with its file's name without the ending; none for a table."""
    return iter(())


@figures_of.register
def _(block: Lines) -> Iterator[tuple[str, Figure]]:
    for view in block.views:
        yield _name(block, view.label, len(block.views)), _lines(block, view)


@figures_of.register
def _(block: Bars) -> Iterator[tuple[str, Figure]]:
    for view in block.views:
        yield (
            _name(block, view.label, len(block.views)),
            _lying(view) if view.owners else _upright(block, view),
        )


@figures_of.register
def _(block: Strips) -> Iterator[tuple[str, Figure]]:
    for view in block.views:
        yield _name(block, view.label, len(block.views)), _strips(view)


@figures_of.register
def _(block: HeatMaps) -> Iterator[tuple[str, Figure]]:
    for item in _drawn(block):
        yield _name(block, item.label, len(block.items)), _maps(block, item)


def _drawn(block: HeatMaps) -> Sequence[Item]:
    """The items that are drawn: the first run of every group, up to `_MOST_ITEMS`."""
    firsts = {item.groups or (index, "no group"): item for index, item in reversed([*enumerate(block.items)])}
    return [item for item in block.items if item in firsts.values()][:_MOST_ITEMS]


def _name(block: Block, label: str, of: int) -> str:
    """The name of a figure's file, for one of `of` figures of a block."""
    words = re.sub(r"[^\w.]+", "-", label).strip("-.")[:80]
    return f"{block.id}-{words}" if of > 1 else block.id


def _lines(block: Lines, view: View) -> Figure:
    figure = Figure(figsize=sized(7, 4.4), layout="constrained")
    axes = figure.add_subplot()
    for series in view.series:
        turn = series.style + series.style // 8  # as in the page: 32 different styles
        colour, few = COLOURS[series.style % len(COLOURS)], len(series.x) <= 40 or block.marked
        axes.plot(
            series.x,
            series.mean,
            _DASHES[turn % 4],
            color=colour,
            label=plain(series.label),
            linewidth=1.8 if len(view.series) <= 20 else 1.1,
            marker=_MARKERS[turn % 4] if few else "",
            markersize=4,
        )
        if series.std is not None and len(view.series) <= _MOST_BANDS:
            low, high = series.mean - series.std, series.mean + series.std
            axes.fill_between(series.x, low, high, color=colour, alpha=0.16, linewidth=0)
    axes.set(xlabel=block.x, ylabel=plain(view.y))
    if block.log:
        axes.set_xscale("log")
        ticks = sorted({float(x) for series in view.series for x in series.x})
        if len(ticks) <= 12:
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.minorticks_off()
    if view.percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    finish(figure, axes)
    return figure


def _upright(block: Bars, view: BarView) -> Figure:
    """A figure of vertical bars."""
    count = len(view.categories)
    figure = Figure(figsize=sized(min(max(6.4, 2.6 + 0.25 * count), 24.0), 4.2), layout="constrained")
    axes = figure.add_subplot()
    _stack(axes, view, upright=True)
    step = -(-count // min(40, int(6 * figure.get_figwidth())))
    axes.set_xticks(range(0, count, step), view.categories[::step])
    axes.tick_params(labelsize=8, length=0)
    axes.set(xlabel=block.x, ylabel=plain(view.y))
    title = plain(view.label, min(110, int(12 * figure.get_figwidth())))
    axes.set_title(title, loc="left", fontsize="medium")
    _explain_stacks(figure, axes, [stack.label for stack in view.stacks])
    return figure


def _lying(view: BarView) -> Figure:
    """A figure of horizontal bars, each with the label of its group."""
    count = len(view.categories)
    figure = Figure(figsize=sized(7.5, min(1.4 + 0.26 * count, 60.0)), layout="constrained")
    axes = figure.add_subplot()
    _stack(axes, view, upright=False)
    axes.set_yticks(range(count), [plain(label, 48) for label in view.categories])
    axes.invert_yaxis()
    axes.tick_params(labelsize=8, length=0)
    axes.set_xlabel(plain(view.y))
    if view.unit:
        axes.xaxis.set_major_formatter(EngFormatter({"bytes": "B", "seconds": "s"}[view.unit]))
    _explain_stacks(figure, axes, [stack.label for stack in view.stacks])
    return figure


def _strips(view: StripView) -> Figure:
    count = len(view.strips)
    figure = Figure(figsize=sized(9.0, min(max(2.8, 1.5 + 0.13 * count), 12.0)), layout="constrained")
    axes = figure.add_subplot()
    rows = [np.repeat(strip.kinds, np.diff(strip.ends, prepend=0)) for strip in view.strips]
    draw_rows(axes, np.stack(rows), [strip.name for strip in view.strips], len(view.kinds))
    explain_tasks(figure, axes, view.kinds)
    axes.set_title(plain(view.label, 110), loc="left", fontsize=9)
    return figure


def _stack(axes: Axes, view: BarView, *, upright: bool) -> None:
    positions, ground = np.arange(len(view.categories)), np.zeros(len(view.categories))
    for index, stack in enumerate(view.stacks):
        values = np.nan_to_num(stack.values)
        draw = partial(axes.bar, positions, values, bottom=ground, width=0.86)
        if not upright:
            draw = partial(axes.barh, positions, values, left=ground, height=0.8)
        draw(
            color=palette(len(view.stacks))[index],
            edgecolor="white",
            linewidth=0.4,
            hatch=hatch(index, len(view.stacks)),
            label=plain(stack.label, 24),
        )
        ground = ground + values
    axes.grid(axis="y" if upright else "x", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _explain_stacks(figure: Figure, axes: Axes, labels: Sequence[str]) -> None:
    """Draw a legend, or a colour bar if there are too many labels for one."""
    count = len(labels)
    if 1 < count <= 20:
        handles, names = axes.get_legend_handles_labels()
        figure.legend(handles[::-1], names[::-1], loc="outside right center", frameon=False, fontsize=8)
    elif count > 20:
        norm = BoundaryNorm(np.arange(count + 1) - 0.5, count)
        bar = figure.colorbar(ScalarMappable(norm, ListedColormap(palette(count))), ax=axes, pad=0.02)
        bar.set_ticks([0.0, float(count - 1)], labels=[labels[0], labels[-1]])
        bar.minorticks_off()


def _maps(block: HeatMaps, item: Item) -> Figure:
    """A figure of the first, the middle and the last frame of an item, beneath each other."""
    chosen = (item.frames[0], item.frames[len(item.frames) // 2], item.frames[-1])
    frames = list({frame.label: frame for frame in chosen}.values())
    if frames[-1].owners:
        frames = frames[-1:]  # rows are groups, which are compared at the end
    left = 0.9 if not frames[0].owners else 0.5 + 0.075 * max(len(str(name)) for name in frames[0].rows)
    high = 3.0 if not frames[0].owners else 0.6 + 0.24 * max(len(frame.rows) for frame in frames)
    wide, apart, over, under = 3.2 if not frames[0].owners else 5.6, 0.85, 0.55, 0.75
    page = (
        left + len(block.maps) * (wide + apart),
        0.4 + len(frames) * (high + over + under) + 0.75,
    )
    figure = Figure(figsize=page)
    figure.text(0.12 / page[0], 1 - 0.28 / page[1], plain(item.label, 100), fontsize=11, fontweight="bold")
    for row, frame in enumerate(frames):
        y = page[1] - 0.4 - (row + 1) * (over + high) - row * under
        for column, spec in enumerate(block.maps):
            x = left + column * (wide + apart)
            axes = figure.add_axes((x / page[0], y / page[1], wide / page[0], high / page[1]))
            draw_map(axes, _map(block, spec, frame))
            axes.set_xlabel(spec.columns, fontsize=8.5)
            axes.set_ylabel(spec.rows if not frame.owners else "", fontsize=8.5)
    for column, spec in enumerate(block.maps):
        x = left + column * (wide + apart)
        draw_scale(
            figure, _scale(spec), (x / page[0], 0.45 / page[1], min(wide, 3.2) / page[0], 0.12 / page[1])
        )
    return shrunk(figure)


def _map(block: HeatMaps, spec: Map, frame: Frame) -> HeatMap:
    """A frame as a heat-map, as `spec` says."""
    cells, beneath, beside = frame.values, frame.before, None
    if spec.shows == "lost":
        cells = frame.lost
        others = np.where(frame.own, np.nan, cells)
        beneath = mean_of_known(others, 0)
        beside = np.append(mean_of_known(others, 1), mean_of_known(beneath[None], 1))
    title = f"{spec.title}, {block.frame} {frame.label}"
    names = ("Fₖ" if spec.shows == "lost" else "before", "mean")
    rows = [plain(str(name), 60) for name in frame.rows]
    return HeatMap(
        title,
        rows,
        frame.columns,
        cells,
        frame.own,
        beneath,
        beside,
        names,
        (spec.columns, spec.rows),
        _scale(spec),
    )


def _scale(spec: Map) -> Scale:
    signed = spec.shows != "value"
    return Scale("RdBu_r" if signed else "YlGn", -spec.most if signed else 0.0, spec.most, spec.scale)
