"""The panel of partitions: how many samples of each label a client holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import ClassVar

import numpy as np
from pydantic import Field

from mnemos.data.download import OFFLINE
from mnemos.data.load import load
from mnemos.errors import MnemosError
from mnemos.experiment.experiment import Experiment, read_experiment
from mnemos.experiment.overrides import parse_yaml
from mnemos.federation.population import partition_samples
from mnemos.plots.partition import label_counts, summarise
from mnemos.report.blocks import Bars, BarView, Block, Stack, Text
from mnemos.report.groups import RunGroup, in_words, no_code
from mnemos.report.panel import Panel, panels
from mnemos.studies.estimate import environment


@panels.register("partition")
class PartitionPanel(Panel):
    """Samples by client and label. Partitions are computed again from the experiments, without downloads."""

    title: ClassVar[str] = "Who holds what"
    order: ClassVar[int] = 80

    most: int = Field(6, ge=1, description="partitions that are shown")
    clients: int = Field(30, ge=1, description="clients that are shown of each")

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """Bars, with a view for each combination of data, partition and seed."""
        known: dict[tuple[str, str], tuple[Experiment, list[int]]] = {}
        for group in groups:
            for reading in group.readings:
                # Only what decides about the partition, which is computed once for all groups that share it.
                same = {
                    "data": reading.experiment.data,
                    "partition": reading.experiment.partition,
                    "seed": reading.seed,
                }
                small = Experiment.model_validate(same)
                known.setdefault((small.hash(), str(reading.seed)), (small, []))[1].append(group.id)
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
        text = "Samples of each client by label, before validation data is split off."
        if views:
            note = " ".join([*sentences, note]).strip()
            yield Bars(
                id="partition", title="Partition", text=text, note=note, x="client", views=tuple(views)
            )
        elif sentences:
            yield Text(id="partition", title="Partition", text=text, sentences=tuple(sentences))


@lru_cache(maxsize=64)
def _view(experiment: str, clients: int, groups: tuple[int, ...]) -> BarView | str:
    """The bars of a partition, or a sentence that says why there are none.

    The result is cached, because a page that follows runs asks for it every few seconds.
    """
    asked = read_experiment(parse_yaml(experiment))
    name = f"{asked.data.title}, {in_words(asked.partition.dump(), 'validation')}, seed {asked.seed}"
    if asked.not_imported:
        return f"The partition of {name} can't be shown: {no_code(asked)}."
    try:
        with environment({OFFLINE: "1"}):  # a report must not download data
            dataset = load(asked.data)
        assignment = partition_samples(asked, dataset)
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
        f"{facts['labels_mean']:.1f} labels per client · mean total variation from all clients together "
        f"{facts['distance_mean']:.2f}"
    )
    stacks = [Stack(label, table[:, index].astype(float)) for index, label in enumerate(dataset.classes)]
    return BarView(name, "samples", tuple(map(str, shown)), tuple(stacks), groups, note=note)
