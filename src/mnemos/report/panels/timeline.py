"""The panel of task schedules: the task of each client in each round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import ClassVar

import numpy as np
from pydantic import Field

from mnemos.data.download import OFFLINE
from mnemos.data.load import load
from mnemos.data.streams.static import Static
from mnemos.errors import MnemosError
from mnemos.experiment.experiment import Experiment, read_experiment
from mnemos.experiment.overrides import parse_yaml
from mnemos.federation.assembly import flow_of
from mnemos.methods.presets.centralised import Centralised
from mnemos.models.mixed import Mixed
from mnemos.plots.timeline import shown_clients, summarise_tasks, task_names
from mnemos.report.blocks import Block, Strip, Strips, StripView, Text
from mnemos.report.groups import RunGroup, in_words, no_code
from mnemos.report.panel import Panel, panels
from mnemos.studies.estimate import environment


@panels.register("timeline")
class TimelinePanel(Panel):
    """Tasks by client and round. Schedules are computed again from the experiments, without downloads."""

    title: ClassVar[str] = "Who was at which task"
    order: ClassVar[int] = 78

    most: int = Field(6, ge=1, description="schedules that are shown")
    clients: int = Field(50, ge=1, description="clients that are shown of each")

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """Strips, with a view for each schedule."""
        known: dict[str, tuple[Experiment, set[int]]] = {}
        for group in groups:
            for reading in group.readings:
                if not isinstance(reading.experiment.stream, Static):
                    small = _scheduled(reading.experiment)
                    known.setdefault(small.hash(), (small, set()))[1].add(group.id)
        # The first seeds of all schedules come before the second seeds.
        chosen = sorted(known.values(), key=lambda entry: entry[0].seed)
        views, sentences = [], []
        for experiment, ids in chosen[: self.most]:
            found = _view(experiment.to_yaml(), self.clients, tuple(sorted(ids)))
            if isinstance(found, StripView):
                views.append(found)
            elif found and found not in sentences:
                sentences.append(found)
        left = len(chosen) - self.most
        note = f"{left} more schedules are left out." if left > 0 else ""
        text = (
            "The task of each client in each round: the one it trains on when it is selected. A client that "
            "moves on only when it is selected stays at its task until then."
        )
        if views:
            note = " ".join([*sentences, note]).strip()
            yield Strips(
                id="timeline", title="Tasks", text=text, note=note, x="round", y="client", views=tuple(views)
            )
        elif sentences:
            yield Text(id="timeline", title="Tasks", text=text, sentences=tuple(sentences))


def _scheduled(experiment: Experiment) -> Experiment:
    """An experiment with only those settings that decide about the schedule of tasks.

    It is equal for all groups that share a schedule, which is then computed once.
    """
    fields = ["data", "partition", "stream", "participation", "selection", "rounds", "seed"]
    if isinstance(experiment.method, Centralised) or experiment.method.meta is not None:
        fields.append("method")
    if isinstance(experiment.model, Mixed):
        fields.append("model")
    return Experiment.model_validate({name: getattr(experiment, name) for name in fields})


@lru_cache(maxsize=64)
def _view(experiment: str, clients: int, groups: tuple[int, ...]) -> StripView | str:
    """The strips of a schedule, or a sentence that says why there are none; empty if it has no tasks.

    The result is cached, because a page that follows runs asks for it every few seconds.
    """
    asked = read_experiment(parse_yaml(experiment))
    options = asked.stream.dump()
    name = f"{asked.data.title}, {in_words(options)}, seed {asked.seed}"
    if asked.not_imported:
        return f"The tasks of {name} can't be shown: {no_code(asked)}."
    try:
        with environment({OFFLINE: "1"}):  # a report must not download data
            dataset = load(asked.data)
        flow = flow_of(asked, dataset)
    except MnemosError as error:
        return f"The tasks of {name} can't be shown: {error}."
    if not flow.tasks:
        return ""
    shown, facts = shown_clients(flow, clients), summarise_tasks(flow)
    strips = [
        Strip(str(client), *_pieces(row))
        for client, row in zip(shown.tolist(), flow.timeline(shown), strict=True)
    ]
    some = f"{len(shown)} of " if len(shown) < flow.assignment.clients else ""
    seen = facts["all_discovered"]
    note = f"{some}{facts['clients']:,} clients · {facts['at_once']:.1f} different tasks at a time · " + (
        "some tasks are never trained on" if seen is None else f"all trained on by round {seen:,}"
    )
    return StripView(name, tuple(task_names(flow, dataset.classes)), tuple(strips), groups, note)


def _pieces(row: np.ndarray[tuple[int], np.dtype[np.int64]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The last round of each stretch of rounds at the same task, and the task of each stretch."""
    ends = np.append(np.flatnonzero(np.diff(row)), len(row) - 1)
    return tuple((ends + 1).tolist()), tuple(row[ends].tolist())
