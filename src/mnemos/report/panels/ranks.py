"""The panel of metrics of single layers, such as the effective rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import numpy as np

from mnemos.data.partition import Floats
from mnemos.report.average import mean_curve
from mnemos.report.blocks import Block, Lines, Series, View
from mnemos.report.groups import RunGroup
from mnemos.report.panel import Panel, panels
from mnemos.report.panels.curves import NETWORK
from mnemos.report.reading import MetricRows, RunReading

_NOISY = "_noisy"
"""The ending of the names of metrics that are of signal and noise together."""

_ALL = "network"
"""The name that stands for all layers together."""

ByLayer = dict[str, list[MetricRows]]
"""A metric's curves of a group, by layer: one for each run, or one for each client's model of each run."""
Known = list[tuple[RunGroup, ByLayer]]


@panels.register("ranks")
class RanksPanel(Panel):
    """Metrics of single layers (`effective-rank` and others), of the global model and of clients' models."""

    title: ClassVar[str] = "Learning metrics"
    order: ClassVar[int] = 72

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """Each layer with all groups, each group with all layers, and the layers of clients' models."""
        metrics = _metrics(groups, "layer")
        known = {name: _known(groups, name, _of_runs) for name in metrics}
        views = [view for name in metrics for view in _one_by_one(name, known[name])]
        if views:
            yield Lines(
                id="layers",
                title="Layer by layer",
                text="A metric of the network and of each layer of the global model, mean over seeds in a "
                "band of one standard deviation.",
                note="Computed after EVBMF has removed noise, unless marked otherwise. A layer's number is "
                "the mean of its two sides. The measure's option `network` sets how these are combined "
                "for the network: by default, the logarithm of their root mean square, which is "
                "negative if that is below 1.",
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
        trained = _metrics(groups, "layer", "model")
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


def _metrics(groups: Sequence[RunGroup], *by: str) -> list[str]:
    """The metrics with records about exactly these columns, each once."""
    readings = [reading for group in groups for reading in group.readings]
    return list(dict.fromkeys(name for reading in readings for name in reading.names(*by)))


def _label(metric: str) -> str:
    words = metric.removesuffix(_NOISY).replace("_", " ")
    return f"{words}, before EVBMF" if metric.endswith(_NOISY) else words


def _known(
    groups: Sequence[RunGroup],
    metric: str,
    curves: Callable[[RunReading, str], Iterator[tuple[str, MetricRows]]],
) -> Known:
    """A metric's curves by group and layer; `curves` yields those of a run, each with its layer's name."""
    found = []
    for group in groups:
        layers: ByLayer = {}
        for reading in group.readings:
            for layer, rows in curves(reading, metric):
                layers.setdefault(layer, []).append(rows)
        found.append((group, layers))
    return found


def _of_runs(reading: RunReading, metric: str) -> Iterator[tuple[str, MetricRows]]:
    """The curves of a run's global model: of the network and of each layer."""
    if len(network := reading.of(metric + NETWORK).finite):
        yield _ALL, network
    for index, rows in _split(reading.of(metric, "layer").finite, "layer"):
        yield reading.layers[index], rows


def _of_models(reading: RunReading, metric: str) -> Iterator[tuple[str, MetricRows]]:
    """The curves of each client's model of a run: of the network and of each layer."""
    for _, network in _split(reading.of(metric + NETWORK, "model").finite, "model"):
        yield _ALL, network
    for index, layer in _split(reading.of(metric, "layer", "model").finite, "layer"):
        yield from ((reading.layers[index], rows) for _, rows in _split(layer, "model"))


def _split(rows: MetricRows, column: str) -> Iterator[tuple[int, MetricRows]]:
    """The rows of each layer or of each client's model, with its number; `column` is `layer` or `model`."""
    for index in np.unique(rows.by[column]).tolist() if len(rows) else []:
        yield index, rows.where(rows.by[column] == index)


def _one_by_one(metric: str, known: Known) -> Iterator[View]:
    """A view for the network and for each layer, with a curve for each group."""
    label = _label(metric)
    for layer in dict.fromkeys(layer for _, layers in known for layer in layers):
        series = [
            Series(group.label, *points, groups=(group.id,), style=group.id)
            for group, layers in known
            if (points := _mean(layers.get(layer, [])))
        ]
        yield View(f"{label}, {layer}", label, tuple(series))


def _together(metric: str, known: Known) -> Iterator[View]:
    """A view for each group, with a curve for each layer."""
    label = _label(metric)
    for group, layers in known:
        series = [
            Series(layer, *points, groups=(group.id,), style=index)
            for index, layer in enumerate(layer for layer in layers if layer != _ALL)
            if (points := _mean(layers[layer]))
        ]
        if series:
            yield View(f"{label}: {group.label}", label, tuple(series))


def _mean(curves: Sequence[MetricRows]) -> tuple[Floats, Floats, Floats | None] | None:
    return mean_curve([(rows.round, rows.value) for rows in curves])
