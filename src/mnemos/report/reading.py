"""Reading runs for reports: everything once, with the metrics in columns by name and kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mnemos.data.partition import Floats
from mnemos.errors import ConfigError, MnemosError
from mnemos.experiment.experiment import Experiment
from mnemos.runs.directory import Status
from mnemos.runs.run import Run, runs_in
from mnemos.runs.store import BY, read_seconds

Whole = NDArray[np.int32]


@dataclass(frozen=True)
class MetricRows:
    """All records of a metric that are about the same columns, in the order in which they were written."""

    round: Whole
    value: Floats
    by: dict[str, Whole]
    """What each record is about, by column: client, model, task, class, or layer (an index into `layers`)."""

    def where(self, chosen: NDArray[np.bool_]) -> MetricRows:
        """The records for which `chosen` is true."""
        by = {key: ids[chosen] for key, ids in self.by.items()}
        return MetricRows(self.round[chosen], self.value[chosen], by)

    def at(self, round: int) -> MetricRows:
        """The records of a round."""
        return self.where(self.round == round)

    @property
    def finite(self) -> MetricRows:
        """The records whose value is finite."""
        return self.where(np.isfinite(self.value))

    def __len__(self) -> int:
        return len(self.round)


_NOTHING = MetricRows(np.zeros(0, np.int32), np.zeros(0), {})


@dataclass(frozen=True)
class RunReading:
    """The content of a run's directory, for reports."""

    run: Run
    experiment: Experiment
    status: Status
    rounds: int
    """The number of rounds that are done."""
    seconds: Floats
    """The seconds of each round whose time is known."""
    environment: dict[str, Any]
    engine: dict[str, Any]
    privacy: dict[str, Any]
    parent: dict[str, Any]
    """The content of a branch's parent.json; empty for other runs."""
    records: dict[tuple[str, tuple[str, ...]], MetricRows]
    """Records by the metric's name and by the columns that they are about."""
    layers: tuple[str, ...] = ()
    """The names of the layers that records are about."""

    @property
    def name(self) -> str:
        """The name of the run's directory."""
        return self.run.path.name

    @property
    def seed(self) -> int:
        """The experiment's seed."""
        return self.experiment.seed

    @property
    def diverged(self) -> bool:
        """Whether the run did not converge."""
        return self.status.status == "diverged"

    @property
    def accuracy(self) -> float | None:
        """The final accuracy of a finished run: test over the last rounds, or validation without a test."""
        return self.status.accuracy if self.status.status == "finished" else None

    def of(self, name: str, *by: str) -> MetricRows:
        """The records of a metric about exactly these columns: `of("after_accuracy", "client", "model")`."""
        return self.records.get((name, tuple(sorted(by))), _NOTHING)

    def names(self, *by: str) -> list[str]:
        """The metrics with records about exactly these columns, in the order in which they first appear."""
        return [name for name, about in self.records if about == tuple(sorted(by))]


class Reader:
    """Reads runs, and reads a run again only when its files have changed; for a page that follows runs."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[object, RunReading]] = {}

    def read(self, runs: Iterable[Run]) -> tuple[list[RunReading], list[str]]:
        """The runs that can be read, and a sentence for each that can't."""
        known: dict[Path, tuple[object, RunReading]] = {}
        notes = []
        for run in runs:
            try:
                known[run.path] = self._read(run)
            except (MnemosError, OSError) as error:
                notes.append(f"left out: {run.path}, which can't be read ({error})")
        self._known = known  # without runs that are gone
        return [reading for _, reading in known.values()], notes

    def _read(self, run: Run) -> tuple[object, RunReading]:
        """A run's signature, which changes with its files, and its content."""
        signature = run.stamp("metrics.jsonl", "status.json", "experiment.yaml")
        known = self._known.get(run.path)
        # Whether a run is still running is known from its lock; no file changes when it stops.
        if known is None or known[0] != signature or known[1].status.status == "running":
            return signature, read(run)
        return known


def read(run: Run) -> RunReading:
    """Read everything that a report may need of a run."""
    metrics = run.metrics
    status = run.status
    rounds = max([status.rounds, *metrics["round"].iloc[-1:].tolist()])
    return RunReading(
        run,
        run.experiment,
        status,
        int(rounds),
        np.array([*read_seconds(run.file("timing.jsonl")).values()], np.float64),
        _json(run, "environment.json"),
        _json(run, "engine.json"),
        _json(run, "privacy.json"),
        _json(run, "parent.json"),
        *by_kind(metrics),
    )


def runs_of(paths: Sequence[Path]) -> list[Run]:
    """The runs at some paths, each once. Each path must be a run, or a folder with at least one run."""
    runs: dict[Path, Run] = {}
    for path in paths:
        if not path.is_dir():
            raise ConfigError(f"{path}: there is no such folder")
        found = runs_in(path)
        if not found:
            raise ConfigError(f"{path}: there are no runs here")
        runs |= {run.path.resolve(): run for run in found}
    return list(runs.values())


def by_kind(metrics: pd.DataFrame) -> tuple[dict[tuple[str, tuple[str, ...]], MetricRows], tuple[str, ...]]:
    """A run's metrics, split by name and by the columns that they are about, and the names of its layers.

    They take a third of the data frame's memory.
    """
    codes, names = pd.factorize(metrics["name"])
    in_layers, layers = pd.factorize(metrics["layer"])
    has = [metrics[column].notna().to_numpy() for column in BY]
    kinds = codes * 2 ** len(BY) + sum(there * 2**bit for bit, there in enumerate(has))
    order = np.argsort(kinds, kind="stable")
    edges = np.flatnonzero(np.diff(kinds[order])) + 1
    columns = {key: metrics[key].to_numpy(np.int32, na_value=-1) for key in ("round", *BY[:-1])}
    columns["layer"] = in_layers.astype(np.int32)
    values = metrics["value"].to_numpy()
    found = {}
    for chosen in np.split(order, edges) if len(order) else []:
        code, about = divmod(int(kinds[chosen[0]]), 2 ** len(BY))
        by = tuple(sorted(key for bit, key in enumerate(BY) if about >> bit & 1))
        rows = MetricRows(columns["round"][chosen], values[chosen], {key: columns[key][chosen] for key in by})
        found[str(names[code]), by] = rows
    return found, tuple(map(str, layers))


def _json(run: Run, name: str) -> dict[str, Any]:
    return run.read_json(name) if run.file(name).exists() else {}


Note = Callable[[str], None]
"""A function that takes a sentence about something that was left out."""
