"""The panel of forgetting matrices: what each client's model forgot of each client's data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from mnemos.report.blocks import Block, Frame, HeatMaps, Item, Map
from mnemos.report.groups import RunGroup
from mnemos.report.panel import Panel, panels
from mnemos.report.reading import RunReading


@panels.register("forgetting-maps")
class ForgettingMapsPanel(Panel):
    """The forgetting matrices of every run, with a slider over the measured rounds."""

    title: ClassVar[str] = "Forgetting by client"
    order: ClassVar[int] = 30

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """Heat-maps, with an item for each run and a frame for each measured round."""
        items = [
            Item(f"{group.label}, seed {reading.seed}", frames, (group.id,))
            for group in groups
            for reading in group.readings
            if (frames := tuple(_frames(reading)))
        ]
        if not items:
            return
        most = max(float(np.abs(frame.lost).max()) for item in items for frame in item.frames)
        # Rounded up to a tenth, for round numbers at the colour bar.
        most = max(0.1, math.ceil(min(most, 1.0) * 10 - 1e-6) / 10)
        yield HeatMaps(
            id="forgetting-maps",
            title="Local client forgetting",
            text="Fₖᵢ = Accₖ(before) − Accₖ(after training at client i): the accuracy that the model of "
            "client i (row) lost in its local training on the validation data of client k (column). "
            "Red is forgotten, blue is gained; boxed is a client's own data.",
            note="Last row of the left map: Fₖ, the mean over the models of the others. Last column: what "
            "training at client i made forget, the mean over the others' data.",
            choice="run",
            maps=(
                Map("Forgetting F", "lost", "model of client i", "data of client k", "F", most),
                Map("Accuracy after training", "value", "model of client i", "data of client k", "accuracy"),
            ),
            items=tuple(items),
        )


def _frames(reading: RunReading) -> Iterator[Frame]:
    """The matrices that are complete; a run may be writing one."""
    before, after = reading.of("before_accuracy", "client"), reading.of("after_accuracy", "client", "model")
    if not len(after):
        return
    starts = np.flatnonzero(np.diff(after.round, prepend=-1))
    ends = np.append(starts[1:], len(after))
    firsts = dict(zip(*np.unique(before.round, return_index=True), strict=True))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        round = int(after.round[start])
        models, row = np.unique(after.by["model"][start:end], return_inverse=True)
        clients, column = np.unique(after.by["client"][start:end], return_inverse=True)
        first = firsts.get(round)
        if first is None or len(row) != len(models) * len(clients):
            continue
        known = slice(first, first + len(clients))
        order = np.argsort(before.by["client"][known])
        if not np.array_equal(before.by["client"][known][order], clients):
            continue
        values = np.full((len(models), len(clients)), np.nan)
        values[row, column] = after.value[start:end]
        if not (np.isfinite(values).all() and np.isfinite(before.value[known]).all()):
            continue
        yield Frame(
            str(round),
            tuple(models.tolist()),
            tuple(clients.tolist()),
            values,
            before.value[known][order],
        )
