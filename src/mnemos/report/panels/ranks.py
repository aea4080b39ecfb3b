"""What was measured of each layer: learning metrics such as the effective rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import numpy as np

from mnemos.data.partition import Floats
from mnemos.report.average import mean_curve
from mnemos.report.blocks import Block, Lines, Series, View
from mnemos.report.groups import Group
from mnemos.report.panel import Panel, panels
from mnemos.report.panels.curves import NETWORK
from mnemos.report.reading import Reading, Rows

_NOISY = "_noisy"
"""How the names of metrics end that are of signal and noise together."""

_ALL = "network"
"""What stands in the place of a layer for the number of all."""

ByLayer = dict[str, list[Rows]]
"""A metric's curves of a group, by layer: one a run, or one a client's model of each run."""
Known = list[tuple[Group, ByLayer]]


@panels.register("ranks")
class Ranks(Panel):
    """Metrics of single layers (`effective-rank` and others), of the global model and of clients' models."""

    title: ClassVar[str] = "Learning metrics"
    order: ClassVar[int] = 72

    def blocks(self, groups: Sequence[Group]) -> Iterator[Block]:
        """A layer of all groups, all layers of a group, and how clients' models differ."""
        readings = [one for group in groups for one in group.readings]
        metrics = list(dict.fromkeys(name for one in readings for name in one.names("layer")))
        known = {name: _known(groups, name, _of_runs) for name in metrics}
        views = [view for name in metrics for view in _one_by_one(name, known[name])]
        if views:
            yield Lines(
                id="layers",
                title="Layer by layer",
                text="A metric of the network and of each layer of the global model, mean over seeds in a "
                "band of one standard deviation.",
                note="After EVBMF, that is of what is more than noise, unless it says otherwise. A layer's "
                "number is the mean of its two sides; the network's is made of its layers' as the measure's "
                "option `network` says.",
                x="round",
                views=tuple(views),
            )
        together = [view for name in metrics for view in _together(name, known[name])]
        if together:
            yield Lines(
                id="layers-together",
                title="All layers of a group",
                text="The same, with all layers of a group together.",
                x="round",
                views=tuple(together),
            )
        trained = list(dict.fromkeys(name for one in readings for name in one.names("layer", "model")))
        views = [view for name in trained for view in _one_by_one(name, _known(groups, name, _of_models))]
        if views:
            yield Lines(
                id="layers-clients",
                title="Clients' models",
                text="The same metrics of clients' models after their local training: mean over the round's "
                "clients and over seeds, in a band of one standard deviation of both together.",
                x="round",
                views=tuple(views),
            )


def _label(metric: str) -> str:
    words = metric.removesuffix(_NOISY).replace("_", " ")
    return f"{words}, before EVBMF" if metric.endswith(_NOISY) else words


def _known(
    groups: Sequence[Group], metric: str, curves: Callable[[Reading, str], Iterator[tuple[str, Rows]]]
) -> Known:
    found = []
    for group in groups:
        layers: ByLayer = {}
        for one in group.readings:
            for layer, rows in curves(one, metric):
                layers.setdefault(layer, []).append(rows)
        found.append((group, layers))
    return found


def _of_runs(one: Reading, metric: str) -> Iterator[tuple[str, Rows]]:
    if len(network := one.of(metric + NETWORK).finite):
        yield _ALL, network
    for place, rows in _split(one.of(metric, "layer").finite, "layer"):
        yield one.layers[place], rows


def _of_models(one: Reading, metric: str) -> Iterator[tuple[str, Rows]]:
    for _, network in _split(one.of(metric + NETWORK, "model").finite, "model"):
        yield _ALL, network
    for place, layer in _split(one.of(metric, "layer", "model").finite, "layer"):
        yield from ((one.layers[place], rows) for _, rows in _split(layer, "model"))


def _split(rows: Rows, column: str) -> Iterator[tuple[int, Rows]]:
    """The rows of each layer, or of each client's model."""
    for place in np.unique(rows.by[column]).tolist() if len(rows) else []:
        yield place, rows.where(rows.by[column] == place)


def _one_by_one(metric: str, known: Known) -> Iterator[View]:
    """The network, and each layer: a curve a group."""
    label = _label(metric)
    for layer in dict.fromkeys(layer for _, layers in known for layer in layers):
        series = [
            Series(group.label, *points, groups=(group.id,), style=group.id)
            for group, layers in known
            if (points := _mean(layers.get(layer, [])))
        ]
        yield View(f"{label}, {layer}", label, tuple(series))


def _together(metric: str, known: Known) -> Iterator[View]:
    """Each group: a curve a layer."""
    label = _label(metric)
    for group, layers in known:
        series = [
            Series(layer, *points, groups=(group.id,), style=place)
            for place, layer in enumerate(layer for layer in layers if layer != _ALL)
            if (points := _mean(layers[layer]))
        ]
        if series:
            yield View(f"{label}: {group.label}", label, tuple(series))


def _mean(curves: Sequence[Rows]) -> tuple[Floats, Floats, Floats | None] | None:
    return mean_curve([(rows.round, rows.value) for rows in curves])
