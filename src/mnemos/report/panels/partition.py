"""Who holds what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import ClassVar

import numpy as np
from pydantic import Field

from mnemos.data.download import OFFLINE
from mnemos.data.load import load
from mnemos.errors import MnemosError
from mnemos.experiment import Experiment
from mnemos.federation import deal
from mnemos.overrides import parse_yaml
from mnemos.report.blocks import Bars, BarView, Block, Stack, Text
from mnemos.report.groups import Group
from mnemos.report.panel import Panel, panels
from mnemos.report.partition import label_counts, summarise
from mnemos.runs.estimate import environment


@panels.register("partition")
class Partition(Panel):
    """Samples by client and label, dealt out again from the experiments; nothing is downloaded for it."""

    title: ClassVar[str] = "Who holds what"
    order: ClassVar[int] = 80

    most: int = Field(6, ge=1, description="partitions that are shown")
    clients: int = Field(30, ge=1, description="clients that are shown of each")

    def blocks(self, groups: Sequence[Group]) -> Iterator[Block]:
        """One view a partition: of each combination of data, partition and seed."""
        known: dict[tuple[str, str], tuple[Experiment, list[int]]] = {}
        for group in groups:
            for one in group.readings:
                # What they are dealt out by, and nothing else: one computation for all groups that share it.
                same = {"data": one.experiment.data, "partition": one.experiment.partition, "seed": one.seed}
                small = Experiment.model_validate(same)
                known.setdefault((small.hash(), str(one.seed)), (small, []))[1].append(group.id)
        # The first seeds of all partitions come before the second seeds.
        chosen = sorted(known.values(), key=lambda entry: entry[0].seed)
        views, sentences = [], []
        for experiment, ids in chosen[: self.most]:
            found = _view(experiment.to_yaml(), self.clients, tuple(sorted(set(ids))))
            if isinstance(found, BarView):
                views.append(found)
            elif found not in sentences:
                sentences.append(found)
        left = len(chosen) - self.most
        note = f"{left} more combinations of data, partition and seed are left out." if left > 0 else ""
        text = "Samples of each client by label, before validation data are split off."
        if views:
            note = " ".join([*sentences, note]).strip()
            yield Bars(
                id="partition", title="Partition", text=text, note=note, x="client", views=tuple(views)
            )
        elif sentences:
            yield Text(id="partition", title="Partition", text=text, sentences=tuple(sentences))


@lru_cache(maxsize=64)
def _view(experiment: str, clients: int, groups: tuple[int, ...]) -> BarView | str:
    """The bars of a partition, or why there are none. Kept: a page that follows runs asks again and again."""
    asked = Experiment.parse(parse_yaml(experiment))
    name = f"{type(asked.data).name}, {_words(asked)}, seed {asked.seed}"
    try:
        with environment({OFFLINE: "1"}):  # a report must not begin a download
            dataset = load(asked.data)
        assignment = deal(asked, dataset)
    except MnemosError as error:
        return f"The partition of {name} can't be shown: {error}."
    labels = dataset.train.labels.numpy()
    shown = np.linspace(0, assignment.clients - 1, min(clients, assignment.clients)).astype(np.int64)
    some = f"{len(shown)} of " if len(shown) < assignment.clients else ""
    if dataset.remote:
        sizes = Stack("samples", assignment.sizes[shown].astype(float))
        note = f"{some}{assignment.clients:,} owners · {len(labels):,} samples · labels stay with them"
        return BarView(name, "samples", tuple(dataset.owners[k] for k in shown), (sizes,), groups, note=note)
    table = label_counts(assignment, labels, len(dataset.classes), shown)
    facts = summarise(assignment, labels)
    note = (
        f"{some}{facts['clients']:,} clients · {facts['samples']:,} samples · "
        f"{facts['labels_mean']:.1f} labels a client · mean total variation from all clients together "
        f"{facts['distance_mean']:.2f}"
    )
    stacks = [Stack(label, table[:, place].astype(float)) for place, label in enumerate(dataset.classes)]
    return BarView(name, "samples", tuple(map(str, shown)), tuple(stacks), groups, note=note)


def _words(asked: Experiment) -> str:
    options = asked.partition.dump()
    words = [f"{key} {value}" for key, value in options.items() if key not in {"name", "validation"}]
    return f"{options['name']} ({', '.join(words)})"
