"""A run's directory, and what can be read from it.

experiment.yaml     the experiment, with every default spelt out
environment.json    versions and machine
engine.json         the engine in use, its arithmetic, why it was chosen, and which devices were used
privacy.json        the privacy guarantee, if there is one
releases            a line for each released model, if the privacy mechanism has a secret
start.json          which encoder the model started from, if it didn't start from random weights
metrics.jsonl       what was measured
timing.jsonl        seconds a round
checkpoints/        the newest two, and the last that was synced to disk
status.json         running, finished, interrupted, paused, diverged or failed
model.safetensors   the trained model, once finished
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter, ValidationError
from torch import nn

from mnemos.common.devices import AUTO
from mnemos.common.files import Lock, locked, try_lock, write_atomically
from mnemos.common.imports import showing
from mnemos.common.plain import parse_json
from mnemos.data.load import load
from mnemos.engines.devices import DeviceEngine
from mnemos.engines.engine import Engine, engines
from mnemos.errors import ConfigError, DataError
from mnemos.experiment.experiment import Experiment, load_experiment, read_experiment
from mnemos.experiment.overrides import read_yaml
from mnemos.federation.assembly import model_of
from mnemos.models.norm import use_batch_statistics
from mnemos.runs.forgetting_matrix import ForgettingMatrix, read_matrix
from mnemos.runs.store import overall_values, read_metrics, read_records
from mnemos.runs.task_course import Course, read_course
from mnemos.runs.trust import Trust, opened
from mnemos.vector import Layout, load_model

if TYPE_CHECKING:
    import pandas as pd


class BusyError(ConfigError):
    """Another process is working on the run."""


State = Literal["running", "finished", "interrupted", "paused", "diverged", "failed"]


@dataclass(frozen=True)
class Status:
    """The content of status.json: whether a run goes on or how it ended, and how far it has come."""

    status: State
    rounds: int = 0
    accuracy: float | None = None
    message: str = ""
    failed_attempts: int = 0
    """How many attempts at a round were made before the run paused."""
    failed_round: int | None = None
    """The round that they were made for; None, in runs of earlier versions: the one after `rounds`."""


_STATUS = TypeAdapter(Status)


@dataclass(frozen=True)
class Run:
    """A run on disk."""

    path: Path

    @classmethod
    def at(cls, path: Path | str) -> Run:
        """The run in a directory; a ConfigError if there is none."""
        run = cls(Path(path))
        try:
            found = run.file("experiment.yaml").is_file()
        except OSError as error:
            raise ConfigError(f"{path}: can't be looked for ({error.strerror})") from None
        if not found:
            raise ConfigError(f"{path}: there is no run here (no experiment.yaml)")
        return run

    def file(self, name: str) -> Path:
        """The path of a file in the run's directory."""
        return self.path / name

    @property
    def experiment(self) -> Experiment:
        """The experiment, to read its settings. Code that it names by import path isn't imported."""
        return self._experiment(read_experiment)

    def load(self, *, trust: Trust = False) -> Experiment:
        """The experiment with the code imported that it names, so that it can run.

        Code that this user has not run before is imported only if it is trusted: `True` trusts all of it, a
        collection of import paths trusts these.
        """
        return opened(str(self.path), lambda: self._experiment(load_experiment), trust)

    def _experiment(self, parse: Callable[[Mapping[str, Any]], Experiment]) -> Experiment:
        path = self.file("experiment.yaml")
        values = read_yaml(path)
        try:
            return parse(values)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    @property
    def metrics(self) -> pd.DataFrame:
        """All measured numbers, one a row: round, client, model, task, class, layer, name, value."""
        return read_metrics(self.file("metrics.jsonl"))

    @property
    def records(self) -> Iterable[dict[str, Any]]:
        """The same records as `metrics`, as dictionaries without what is empty."""
        return read_records(self.file("metrics.jsonl"))

    def forgetting(self, round: int) -> pd.DataFrame:
        """F of a round: how much the model of client i (rows) forgot of the data of client k (columns)."""
        return self.forgetting_matrix(round).forgetting

    def forgetting_matrix(self, round: int, *, classes: bool = False) -> ForgettingMatrix:
        """Accuracies before and after a round's local training, by client's data or by class."""
        return read_matrix(self.metrics, round, classes=classes, source=self.path)

    def continual(self) -> Course:
        """Continual-learning numbers: average accuracy, forgetting, transfer; by round, task and client."""
        return read_course(self.metrics, self.path)

    @property
    def status(self) -> Status:
        """The run's status; a running one whose process is gone is `interrupted`."""
        if not self.file("status.json").exists():
            return Status("interrupted")  # its process ended before the first status was written
        known = self.read_json("status.json")
        try:
            status = _STATUS.validate_python(known)
        except ValidationError:
            raise DataError(f"{self.file('status.json')}: it is damaged") from None
        if status.status != "running":
            return status
        state: State = "running" if self.locked else "interrupted"
        return replace(status, status=state, rounds=self.saved_rounds)

    @property
    def failed_attempts(self) -> tuple[int, int]:
        """(how many attempts at a round were made before the run paused, which round that is)."""
        try:
            status = self.status
        except DataError:
            return 0, 0  # status.json is damaged; resuming writes it anew
        round = status.failed_round
        return status.failed_attempts, status.rounds + 1 if round is None else round

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to do, because the run is finished or did not converge."""
        try:
            return self.status.status in {"finished", "diverged"}
        except DataError:
            return False  # status.json is damaged; resuming writes it anew

    @property
    def saved_rounds(self) -> int:
        """Rounds up to the newest checkpoint."""
        names = [path.stem for path in self.file("checkpoints").glob("round-*.safetensors")]
        return max((int(name.removeprefix("round-")) for name in names), default=0)

    @property
    def engine(self) -> Engine | None:
        """The engine that the run has used so far, to read its options. Its code isn't imported."""
        with showing():
            return self._engine()

    def load_engine(self, *, trust: Trust = False) -> Engine | None:
        """The engine that the run has used so far, with its code imported; `trust` is as in `load`."""
        return opened(str(self.path), self._engine, trust)

    def _engine(self) -> Engine | None:
        path = self.file("engine.json")
        if not path.exists():
            return None
        try:
            engine = engines.parse(known := self.read_json(path.name).get("engine"))
            if engine.takes_device() and isinstance(known, dict) and "device" not in known:
                return engine.model_copy(update={"device": "cpu"})  # earlier versions knew no other
            return engine
        except ConfigError as error:
            raise DataError(f"{path}: {error}") from None

    @property
    def devices(self) -> list[tuple[str, ...]]:
        """The names of the devices that its rounds were done on so far, each group once."""
        try:
            used = self.read_json("engine.json").get("used")
        except DataError:
            return []
        entries = [entry for entry in used if isinstance(entry, dict)] if isinstance(used, list) else []
        named = (entry.get("device") for entry in entries)
        groups = (tuple(names) if isinstance(names, list) else (str(names),) for names in named)
        return list(dict.fromkeys(groups))

    @property
    def accuracy(self) -> float | None:
        """Mean test accuracy over the last rounds, as the experiment asks for it."""
        return self.status.accuracy

    @property
    def epsilon(self) -> float | None:
        """ε of the rounds so far; None without a privacy guarantee."""
        values = overall_values(self.records, "epsilon")
        return float([*values.values()][-1]) if values else None

    def model(self, *, trust: Trust = False) -> nn.Module:
        """The trained model as an ordinary PyTorch module; `trust` is as in `load`."""
        experiment = self.load(trust=trust)
        plan = experiment.plan
        path = self.file("model.safetensors")
        if not path.is_file():
            raise DataError(f"{path}: the run has no trained model yet (it is {self.status.status})")
        module = model_of(experiment, load(plan.data))
        layout = Layout.of(module)
        module.load_state_dict(layout.state_dict(*load_model(path, layout)), strict=False)
        if plan.method.buffers.in_batches:
            use_batch_statistics(module)
        return plan.method.head.reader(module).eval()

    def read_json(self, name: str) -> dict[str, Any]:
        """The content of one of the run's JSON files."""
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
        """A value that changes when one of these files is written to, made or removed."""
        return tuple(_stamp(self.file(name)) for name in names)

    @property
    def locked(self) -> bool:
        """Whether a process is working on the run now."""
        try:
            handle = os.open(self.file(".lock"), os.O_RDONLY)  # it may be a run that this user can only read
        except OSError:
            return False  # no process has ever worked on it, or it is being removed
        try:
            return not try_lock(handle, fcntl.LOCK_SH)  # shared: several processes may look at once
        finally:
            os.close(handle)

    @contextmanager
    def lock(self) -> Iterator[Lock]:
        """Lock the run for this process, or raise BusyError; the system unlocks it when the process ends."""
        with locked(self.file(".lock")) as own:
            if own is None:
                raise BusyError(f"{self.path}: another process is working on this run")
            yield own


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def create(experiment: Experiment, folder: Path) -> Run:
    """Make a run directory in `folder` that is named after the experiment and holds its experiment.yaml."""
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
        try:
            write_atomically(path / "experiment.yaml", experiment.to_yaml().encode())
        except OSError as error:
            path.rmdir()
            raise ConfigError(f"{path}: the run's directory can't be made ({error.strerror})") from None
        return Run(path)
    raise ConfigError(f"{folder}: there are too many runs of this experiment already")


def runs_in(folder: Path) -> list[Run]:
    """All runs in a folder and below it, sorted by path."""
    # Unlike `rglob`, `os.walk` tolerates directories that are removed meanwhile.
    found = (Path(path) for path, _, files in os.walk(folder) if "experiment.yaml" in files)
    return [Run(path) for path in sorted(found)]


def find(experiment: Experiment, folder: Path) -> Run | None:
    """A run of exactly this experiment in the folder, or None; of several, one that has ended.

    What counts of `engine.device` is the device, whatever it is called: a run that `auto` has made on the CPU
    is one of `cpu`, too, and one that it has made on a GPU isn't.
    """
    same = _runs_of(experiment, folder)
    for device, other in _called_otherwise(experiment):
        same += [run for run in _runs_of(other, folder) if run.devices == [device]]
    return next((run for run in same if run.ended), same[0] if same else None)


def _runs_of(experiment: Experiment, folder: Path) -> list[Run]:
    """The runs in a folder whose experiment has the same settings to the letter."""
    paths = sorted(folder.glob(f"*-{experiment.hash()}*"))
    found = [Run(path) for path in paths if (path / "experiment.yaml").is_file()]
    return [run for run in found if run.experiment.same_as(experiment)]


def _called_otherwise(experiment: Experiment) -> Iterator[tuple[tuple[str, ...], Experiment]]:
    """The experiment with other names of its devices, and the names that a run's record has for them."""
    engine = experiment.engine
    if not isinstance(engine, DeviceEngine):
        return
    try:
        devices = tuple(map(str, engine.devices))
    except ConfigError:  # there is no such device here, so it isn't known what else it is called
        return
    kind = devices[0].removesuffix(":0")
    names = (AUTO, devices[0], kind) if len(devices) == 1 else (devices,)
    for name in dict.fromkeys(names):
        if name != engine.device:
            named = engine.model_copy(update={"device": name})
            yield devices, experiment.model_copy(update={"engine": named})
