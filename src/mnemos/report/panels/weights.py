"""The panel of aggregation weights: how much each client counted in the mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import pandas as pd

from mnemos.report.average import mean_of, std_of
from mnemos.report.blocks import Block, Cell, Column, Lines, Row, Series, Table, View
from mnemos.report.groups import RunGroup
from mnemos.report.panel import Panel, panels
from mnemos.report.reading import RunReading

_MOST_CLIENTS = 10
"""With more clients in a run, only extremes and the median are drawn."""
_WHOLE = "the whole model"


@panels.register("weights")
class WeightsPanel(Panel):
    """The weights α of clients in the mean, for weightings that compare clients (`feder`, `precision`, …)."""

    title: ClassVar[str] = "Clients' weights"
    order: ClassVar[int] = 74

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """How far the weights are from a plain mean: as a table, by client and by layer."""
        known = [
            (group, [w for reading in group.readings if len(w := _weights(reading))]) for group in groups
        ]
        known = [(group, runs) for group, runs in known if runs]
        if not known:
            return
        yield Table(
            id="weights-table",
            title="Distance from a plain mean",
            text="|K α − 1|, K being the number of clients in a round and α the share of one of them in a "
            "layer: 0 where all count alike, 0.1 where one counts a tenth more or less. Mean and largest "
            "over clients, layers and rounds; mean ± standard deviation over seeds.",
            note="If a weighting weighs every parameter separately, a layer's share is the mean of its "
            "parameters' shares, and single parameters are further from a plain mean.",
            columns=(
                Column("group"),
                Column("clients per round", "number"),
                Column("layers", "number"),
                Column("mean", "number"),
                Column("largest", "number"),
                Column("largest in", help="the layer and round of the first seed's largest value"),
            ),
            rows=tuple(_row(group, runs) for group, runs in known),
        )
        yield Lines(
            id="weights",
            title="Weights of clients",
            text="K α − 1 of each client: 0 where it counts as in a plain mean, 0.1 where it counts a tenth "
            "more. Mean over layers in a band of one standard deviation, of the group's lowest seed; of more "
            f"than {_MOST_CLIENTS} clients, the largest, the median and the smallest of each round.",
            x="round",
            views=tuple(
                View(group.label, "K α − 1", tuple(_by_client(group, runs[0]))) for group, runs in known
            ),
        )
        layered = [(group, runs[0]) for group, runs in known if runs[0]["layer"].nunique() > 1]
        if layered:
            yield Lines(
                id="weights-layers",
                title="Distance from a plain mean, by layer",
                text="Mean of |K α − 1| over the clients of a round, in each layer, of the group's lowest "
                "seed.",
                x="round",
                views=tuple(
                    View(group.label, "mean |K α − 1|", tuple(_by_layer(group, run)))
                    for group, run in layered
                ),
            )


def _weights(reading: RunReading) -> pd.DataFrame:
    """A run's weights: rows of round, client, layer and `off`, which is K α − 1."""
    rows, names = reading.of("weight", "client", "layer").finite, reading.layers
    if not len(rows):  # a weight for the whole model
        rows, names = reading.of("weight", "client").finite, (_WHOLE,)
    nothing = np.zeros(len(rows), int)
    layers = [names[index] for index in rows.by.get("layer", nothing)]
    frame = pd.DataFrame({"round": rows.round, "client": rows.by.get("client", nothing), "layer": layers})
    # Clients are counted by layer, because with mixed models not all clients have the same layers.
    frame["off"] = rows.value * frame.groupby(["round", "layer"])["client"].transform("nunique") - 1
    return frame


def _row(group: RunGroup, runs: Sequence[pd.DataFrame]) -> Row:
    off = [run["off"].abs() for run in runs]
    at = runs[0].iloc[int(off[0].argmax())]
    clients = mean_of([float(run.groupby("round")["client"].nunique().mean()) for run in runs])
    layers = runs[0]["layer"].nunique()
    cells = (
        Cell(group.label, group.label),
        Cell(f"{clients:.3g}", clients),
        Cell(str(layers), layers),
        _small([float(values.mean()) for values in off]),
        _small([float(values.max()) for values in off]),
        Cell(f"{at['layer']}, round {at['round']}"),
    )
    return Row(cells, (group.id,))


def _small(values: Sequence[float]) -> Cell:
    """A cell with the mean to two significant digits, because its order of magnitude matters."""
    mean, std = mean_of(values), std_of(values)
    return Cell(f"{mean:.2g}" + ("" if std is None else f" ± {std:.1g}"), mean, spread=std)


def _by_client(group: RunGroup, run: pd.DataFrame) -> Iterator[Series]:
    """A curve for each client; of many clients, those of the largest, median and smallest weight."""
    over_layers = run.groupby(["client", "round"])["off"].agg(["mean", "std"])
    clients = run["client"].unique().tolist()
    if len(clients) > _MOST_CLIENTS:
        of_round = over_layers["mean"].groupby("round")
        for style, (name, points) in enumerate(
            (("largest", of_round.max()), ("median", of_round.median()), ("smallest", of_round.min()))
        ):
            yield _series(group, name, points, style)
        return
    for style, client in enumerate(sorted(clients)):
        own = over_layers.loc[client]
        yield _series(group, f"client {client}", own["mean"], style, own["std"])


def _by_layer(group: RunGroup, run: pd.DataFrame) -> Iterator[Series]:
    """A curve for each layer: the mean over clients."""
    for style, (layer, rows) in enumerate(run.groupby("layer", sort=False)):
        yield _series(group, str(layer), rows["off"].abs().groupby(rows["round"]).mean(), style)


def _series(
    group: RunGroup, label: str, points: pd.Series, style: int, spread: pd.Series | None = None
) -> Series:
    std = None if spread is None or spread.isna().all() else spread.to_numpy(float)
    return Series(
        label,
        points.index.to_numpy(float),
        points.to_numpy(float),
        std,
        groups=(group.id,),
        style=style,
    )
