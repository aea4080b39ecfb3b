"""A run's directory, and what can be read from it.

experiment.yaml     the experiment, with every default spelt out
environment.json    versions and machine
engine.json         the engine in use, its arithmetic, and why it was taken
privacy.json        what is promised about clients' data, if anything is
releases            a line for each model that somebody may have seen, if privacy has a secret
start.json          which encoder the model started from, if it didn't start from random weights
metrics.jsonl       what was measured
timing.jsonl        seconds a round
checkpoints/        the newest two, and the last that waited for the disk
status.json         running, finished, interrupted, paused, diverged or failed
model.safetensors   the trained model, once finished
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import TypeAdapter, ValidationError
from torch import nn

from mnemos.data.load import load
from mnemos.engines.engine import Engine, engines
from mnemos.errors import ConfigError, DataError
from mnemos.experiment import Experiment, load_experiment
from mnemos.federation import model_of
from mnemos.files import locked, try_lock, write_atomically
from mnemos.models.norm import use_batch_statistics
from mnemos.overrides import read_yaml
from mnemos.plain import parse_json
from mnemos.runs.continual import Course, read_course
from mnemos.runs.forgetting import ForgettingMatrix, read_matrix
from mnemos.runs.store import overall, read_metrics
from mnemos.vector import Layout, load_model


class BusyError(ConfigError):
    """Another process is working on the run."""


@dataclass(frozen=True)
class Status:
    """Where a run stands."""

    status: str
    rounds: int = 0
    accuracy: float | None = None
    message: str = ""
    in_vain: int = 0
    """How often the round after these was tried before the run paused."""


_STATUS = TypeAdapter(Status)


@dataclass(frozen=True)
class Run:
    """A run on disk."""

    path: Path

    @classmethod
    def at(cls, path: Path | str) -> Run:
        """The run in a directory."""
        run = cls(Path(path))
        try:
            found = run.file("experiment.yaml").is_file()
        except OSError as error:
            raise ConfigError(f"{path}: can't be looked for ({error.strerror})") from None
        if not found:
            raise ConfigError(f"{path}: there is no run here (no experiment.yaml)")
        return run

    def file(self, name: str) -> Path:
        """A file of the run."""
        return self.path / name

    @property
    def experiment(self) -> Experiment:
        """What was asked for."""
        path = self.file("experiment.yaml")
        values = read_yaml(path)
        try:
            return load_experiment(values)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    @property
    def metrics(self) -> pd.DataFrame:
        """What was measured: round, client, task, class, name, value."""
        return read_metrics(self.file("metrics.jsonl"))

    def forgetting(self, round: int) -> pd.DataFrame:
        """F of a round: what the model of client i (rows) forgot of the data of client k (columns)."""
        return self.forgetting_matrix(round).forgetting

    def forgetting_matrix(self, round: int, *, classes: bool = False) -> ForgettingMatrix:
        """What a round's local training did to the data of the cohort's clients, or to each class."""
        return read_matrix(self.metrics, round, classes=classes, source=self.path)

    def continual(self) -> Course:
        """How tasks fared: average accuracy, forgetting, transfer; by round, by task and by client."""
        return read_course(self.metrics, self.path)

    @property
    def status(self) -> Status:
        """Where the run stands; one whose process is gone is interrupted."""
        if not self.file("status.json").exists():
            return Status("interrupted")  # ended before it had begun
        known = self.read_json("status.json")
        try:
            status = _STATUS.validate_python(known)
        except ValidationError:
            raise DataError(f"{self.file('status.json')}: it is damaged") from None
        if status.status != "running":
            return status
        return Status("running" if self.locked else "interrupted", self.saved_rounds)

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to do: it is finished, or did not converge."""
        try:
            return self.status.status in {"finished", "diverged"}
        except DataError:
            return False  # what is known of it is damaged, which a resume mends

    @property
    def saved_rounds(self) -> int:
        """Rounds up to the newest checkpoint."""
        names = [path.stem for path in self.file("checkpoints").glob("round-*.safetensors")]
        return max((int(name.removeprefix("round-")) for name in names), default=0)

    @property
    def engine(self) -> Engine | None:
        """The engine the run's rounds so far have used."""
        path = self.file("engine.json")
        if not path.exists():
            return None
        try:
            return engines.parse(self.read_json(path.name).get("engine"))
        except ConfigError as error:
            raise DataError(f"{path}: {error}") from None

    @property
    def accuracy(self) -> float | None:
        """Mean test accuracy over the last rounds, as the experiment asks for it."""
        return self.status.accuracy

    @property
    def epsilon(self) -> float | None:
        """ε of the rounds so far; None, if nothing is promised about clients' data."""
        values = overall(self.metrics, "epsilon")["value"]
        return float(values.iloc[-1]) if len(values) else None

    def model(self) -> nn.Module:
        """An ordinary module with the trained weights."""
        plan = self.experiment.plan
        path = self.file("model.safetensors")
        if not path.is_file():
            raise DataError(f"{path}: the run has no trained model yet (it is {self.status.status})")
        module = model_of(self.experiment, load(plan.data))
        layout = Layout.of(module)
        module.load_state_dict(layout.state_dict(*load_model(path, layout)), strict=False)
        if plan.method.buffers.in_batches:
            use_batch_statistics(module)
        return plan.method.head.reader(module).eval()

    def read_json(self, name: str) -> dict[str, Any]:
        """One of the run's JSON files."""
        path = self.file(name)
        try:
            value = parse_json(path.read_text())
            if not isinstance(value, dict):
                raise ValueError(name)
        except FileNotFoundError:
            raise DataError(f"{path}: it is missing") from None
        except (OSError, ValueError):
            raise DataError(f"{path}: it is damaged") from None
        return value

    def write_json(self, name: str, value: dict[str, Any]) -> None:
        """Replace one of the run's JSON files."""
        write_atomically(self.file(name), json.dumps(value, indent=1).encode())

    def stamp(self, *names: str) -> tuple[tuple[int, int], ...]:
        """Differs when one of these files has been written to, made or removed."""
        return tuple(_stamp(self.file(name)) for name in names)

    @property
    def locked(self) -> bool:
        """Whether a process is working on the run now."""
        try:
            handle = os.open(self.file(".lock"), os.O_RDONLY)  # a run that is only read may be someone else's
        except OSError:
            return False  # nobody has ever worked on it, or it is being removed
        try:
            return not try_lock(handle, fcntl.LOCK_SH)  # several may look at the same moment
        finally:
            os.close(handle)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Have the run for oneself; the system lets go of the lock when the process ends, however it ends."""
        with locked(self.file(".lock")) as own:
            if not own:
                raise BusyError(f"{self.path}: another process is working on this run")
            yield


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def create(experiment: Experiment, folder: Path) -> Run:
    """A new, empty run directory for an experiment, named after it."""
    stem = f"{type(experiment.data).name}-{type(experiment.method).name}-{type(experiment.method.loss).name}"
    stem = f"{stem}-s{experiment.seed}-{experiment.hash()}".replace("/", "_").replace(":", "_")
    for attempt in range(1, 10_000):
        path = folder / (stem if attempt == 1 else f"{stem}-{attempt}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise ConfigError(f"{path}: the run's directory can't be made ({error.strerror})") from None
        write_atomically(path / "experiment.yaml", experiment.to_yaml().encode())
        return Run(path)
    raise ConfigError(f"{folder}: there are too many runs of this experiment already")


def runs_in(folder: Path) -> list[Run]:
    """All runs in a folder and below, by name."""
    # Unlike `rglob`, this doesn't mind directories that are removed meanwhile.
    found = (Path(place) for place, _, files in os.walk(folder) if "experiment.yaml" in files)
    return [Run(path) for path in sorted(found)]


def find(experiment: Experiment, folder: Path) -> Run | None:
    """A run of the very same experiment, if the folder has one; of several, one that has ended."""
    paths = sorted(folder.glob(f"*-{experiment.hash()}*"))
    found = [Run(path) for path in paths if (path / "experiment.yaml").is_file()]
    same = [run for run in found if run.experiment == experiment]
    return next((run for run in same if run.ended), same[0] if same else None)
