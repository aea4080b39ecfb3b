"""A run as reports want it: everything read once, the metrics by kind."""

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
from mnemos.experiment import Experiment
from mnemos.runs.run import Run, Status, runs_in
from mnemos.runs.store import BY, read_seconds

Whole = NDArray[np.int32]


@dataclass(frozen=True)
class Rows:
    """All records of one name and one kind, in the order they were written."""

    round: Whole
    value: Floats
    by: dict[str, Whole]
    """Of the columns that the records have: client, model, task, class, and layer as a place in `layers`."""

    def where(self, chosen: NDArray[np.bool_]) -> Rows:
        """Those that are chosen."""
        by = {key: ids[chosen] for key, ids in self.by.items()}
        return Rows(self.round[chosen], self.value[chosen], by)

    def at(self, number: int) -> Rows:
        """Those of one round."""
        return self.where(self.round == number)

    @property
    def finite(self) -> Rows:
        """Those whose value is a number."""
        return self.where(np.isfinite(self.value))

    def __len__(self) -> int:
        return len(self.round)


_NOTHING = Rows(np.zeros(0, np.int32), np.zeros(0), {})


@dataclass(frozen=True)
class Reading:
    """A run, read."""

    run: Run
    experiment: Experiment
    status: Status
    rounds: int
    """Rounds done so far."""
    seconds: Floats
    """Of each round, as far as it is known."""
    environment: dict[str, Any]
    engine: dict[str, Any]
    privacy: dict[str, Any]
    records: dict[tuple[str, tuple[str, ...]], Rows]
    layers: tuple[str, ...] = ()
    """The names of the layers that records are about."""

    @property
    def name(self) -> str:
        """The name of the run's directory."""
        return self.run.path.name

    @property
    def seed(self) -> int:
        """The seed."""
        return self.experiment.seed

    @property
    def diverged(self) -> bool:
        """Whether the run did not converge."""
        return self.status.status == "diverged"

    @property
    def accuracy(self) -> float | None:
        """The final accuracy: test over the last rounds, validation where there is no test."""
        return self.status.accuracy if self.status.status == "finished" else None

    def of(self, name: str, *by: str) -> Rows:
        """The records of a name that are about exactly these: `of("after_accuracy", "client", "model")`."""
        return self.records.get((name, tuple(sorted(by))), _NOTHING)

    def names(self, *by: str) -> list[str]:
        """The names of the records that are about exactly these, in the order they were first written."""
        return [name for name, about in self.records if about == tuple(sorted(by))]


class Reader:
    """Reads runs, and each again only when its files have changed: for a page that follows runs."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[object, Reading]] = {}

    def read(self, runs: Iterable[Run]) -> tuple[list[Reading], list[str]]:
        """The runs that can be read, and a sentence for each that can't."""
        known: dict[Path, tuple[object, Reading]] = {}
        notes = []
        for run in runs:
            try:
                known[run.path] = self._one(run)
            except (MnemosError, OSError) as error:
                notes.append(f"left out: {run.path}, which can't be read ({error})")
        self._known = known  # without runs that are gone
        return [reading for _, reading in known.values()], notes

    def _one(self, run: Run) -> tuple[object, Reading]:
        signature = run.stamp("metrics.jsonl", "status.json", "experiment.yaml")
        known = self._known.get(run.path)
        # Whether a run is still running shows in a lock, not in a file's time.
        if known is None or known[0] != signature or known[1].status.status == "running":
            return signature, read(run)
        return known


def read(run: Run) -> Reading:
    """Everything a report may want to know of a run."""
    metrics = run.metrics
    status = run.status
    rounds = max([status.rounds, *metrics["round"].iloc[-1:].tolist()])
    return Reading(
        run,
        run.experiment,
        status,
        int(rounds),
        np.array([*read_seconds(run.file("timing.jsonl")).values()], np.float64),
        _json(run, "environment.json"),
        _json(run, "engine.json"),
        _json(run, "privacy.json"),
        *by_kind(metrics),
    )


def runs_of(paths: Sequence[Path]) -> list[Run]:
    """The runs at some places (each a run or a folder with runs), each once; there must be some at each."""
    runs: dict[Path, Run] = {}
    for path in paths:
        if not path.is_dir():
            raise ConfigError(f"{path}: there is no such folder")
        found = runs_in(path)
        if not found:
            raise ConfigError(f"{path}: there are no runs here")
        runs |= {run.path.resolve(): run for run in found}
    return list(runs.values())


def by_kind(metrics: pd.DataFrame) -> tuple[dict[tuple[str, tuple[str, ...]], Rows], tuple[str, ...]]:
    """A run's metrics, split by name and by what they are about, and its layers' names.

    It takes a third of the data frame's memory.
    """
    codes, names = pd.factorize(metrics["name"])
    in_layers, layers = pd.factorize(metrics["layer"])
    has = [metrics[column].notna().to_numpy() for column in BY]
    kinds = codes * 2 ** len(BY) + sum(there * 2**place for place, there in enumerate(has))
    order = np.argsort(kinds, kind="stable")
    edges = np.flatnonzero(np.diff(kinds[order])) + 1
    columns = {key: metrics[key].to_numpy(np.int32, na_value=-1) for key in ("round", *BY[:-1])}
    columns["layer"] = in_layers.astype(np.int32)
    values = metrics["value"].to_numpy()
    found = {}
    for places in np.split(order, edges) if len(order) else []:
        code, about = divmod(int(kinds[places[0]]), 2 ** len(BY))
        by = tuple(sorted(key for place, key in enumerate(BY) if about >> place & 1))
        rows = Rows(columns["round"][places], values[places], {key: columns[key][places] for key in by})
        found[str(names[code]), by] = rows
    return found, tuple(map(str, layers))


def _json(run: Run, name: str) -> dict[str, Any]:
    return run.read_json(name) if run.file(name).exists() else {}


Note = Callable[[str], None]
"""Takes a sentence about something that was left out."""
