"""A run's directory, and what can be read from it.

experiment.yaml     the experiment, with every default spelt out
environment.json    versions and machine
engine.json         the engine in use, its arithmetic, why it was chosen, and which devices were used
privacy.json        the privacy guarantee, if there is one
releases            a line for each released model, if the privacy mechanism has a secret
start.json          which encoder the model started from, if it didn't start from random weights
metrics.jsonl       what was measured
timing.jsonl        seconds a round
checkpoints/        the newest two, and the last that was synced to disk; in kept/, those that are kept
parent.json         the run and the round that a branch began at, and what it changes
status.json         running, finished, interrupted, paused, diverged or failed
model.safetensors   the trained model, once finished, with its description in the header
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from mnemos.common.files import Lock, locked, write_atomically
from mnemos.common.imports import showing
from mnemos.engines.engine import Engine, engines
from mnemos.errors import ConfigError, DataError
from mnemos.experiment.experiment import Experiment, load_experiment, read_experiment
from mnemos.experiment.overrides import read_yaml
from mnemos.runs.directory import RunDirectory, directories_in
from mnemos.runs.forgetting_matrix import ForgettingMatrix, read_matrix
from mnemos.runs.store import overall_values, read_metrics, read_records
from mnemos.runs.task_course import Course, read_course
from mnemos.runs.trust import Trust, opened
from mnemos.runs.views import as_html, by_round, in_words

if TYPE_CHECKING:
    import pandas as pd

    from mnemos.plots.style import Picture
    from mnemos.runs.trained.export import Format
    from mnemos.runs.trained.model import Choice, Predictions, TrainedModel
    from mnemos.runs.why.answer import Answer
    from mnemos.runs.why.ask import Question
    from mnemos.runs.why.ledger import Accounts


class BusyError(ConfigError):
    """Another process is working on the run."""


@dataclass(frozen=True, repr=False)
class Run(RunDirectory):
    """A run on disk."""

    def __repr__(self) -> str:
        return f"<Run {self.path}: {in_words(self)}>"

    def _repr_html_(self) -> str:
        return as_html(self)

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

    def table(self) -> pd.DataFrame:
        """The numbers of the whole federation: a row per round, a column per name."""
        return by_round(self)

    def forgetting(self, round: int) -> pd.DataFrame:
        """F of a round: how much the model of client i (rows) forgot of the data of client k (columns)."""
        return self.forgetting_matrix(round).forgetting

    def forgetting_matrix(self, round: int, *, classes: bool = False) -> ForgettingMatrix:
        """Accuracies before and after a round's local training, by client's data or by class."""
        return read_matrix(self.metrics, round, classes=classes, source=self.path)

    def plot(self, name: str | None = None) -> Picture:
        """A curve over the rounds of a column of `table`; by default of the accuracy.

        Notebooks show the figure, and `run.plot().save("curve.pdf")` writes it.
        """
        from mnemos.plots.of_runs import curves  # slow to import, and a run needs none of this

        return curves({self.path.name: [self]}, name)

    def plot_forgetting(self, *rounds: int, classes: bool = False) -> Picture:
        """Heat-maps of the forgetting in `rounds`, by default in the last in which it was measured.

        A map shows what the model of each client forgot of each client's data or, with `classes`, of each
        class.
        """
        from mnemos.plots.of_runs import heat_maps

        return heat_maps({self.path.name: self}, rounds, classes=classes)

    def plot_partition(self, clients: int = 30, *, trust: Trust = False) -> Picture:
        """Who holds what: a bar for each of at most `clients` clients, stacked by label."""
        from mnemos.plots.of_runs import partition

        return partition(self.load(trust=trust), clients)

    def ledger(self) -> dict[int, Accounts]:
        """What each round with a recorded ledger did to each class and task, in exact fractions."""
        from mnemos.runs.why.ledger import read_ledger

        return read_ledger(self.records)

    def why(self, question: Question | None = None, *, trust: Trust = False) -> Answer:
        """Say why a class or a task was lost, by default the class that has lost most; as `mnemos.why`."""
        from mnemos.runs.why.ask import Question, why  # it needs a federation, and a run on disk doesn't

        return why(self, question or Question(), trust=trust)

    def continual(self) -> Course:
        """Continual-learning numbers: average accuracy, forgetting, transfer; by round, task and client."""
        return read_course(self.metrics, self.path)

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
        """The trained model as an ordinary PyTorch module; `trust` is as in `load`.

        It takes samples that are scaled as in training; `predict` scales them itself.
        """
        return self.trained("all", trust=trust).module

    def trained(self, model: Choice = None, *, trust: Trust = False) -> TrainedModel:
        """The trained model with its classes and the scale of its samples; `trust` is as in `load`.

        If clients have different models, `model` chooses one by its number (a peer's, by its client's), or
        `"all"` for the mean of what all predict.
        """
        from mnemos.runs.trained.load import of_run  # a run needs none of this while it trains

        return of_run(self, trust).chosen(model, self.path)

    def predict(
        self, x: object, *, model: Choice = None, batch: int = 512, resize: bool = False, trust: Trust = False
    ) -> Predictions:
        """The classes of samples with their probabilities: `TrainedModel.predict` of the trained model."""
        return self.trained(model, trust=trust).predict(x, batch=batch, resize=resize)

    def export(
        self,
        folder: Path | str,
        *,
        model: Choice = None,
        formats: Collection[Format] = (),
        licence: str = "",
        trust: Trust = False,
    ) -> Path:
        """Write the trained model as a folder for a model hub, which `mnemos.load` reads; returns its path.

        The folder has the weights, a description, and a model card. `formats` adds `torch` (a program of
        `torch.export`) or `onnx`. `licence` goes into the card. `model` is as in `trained`.
        """
        from mnemos.runs.trained.export import export  # a run needs none of this while it trains

        return export(self, Path(folder), self.trained(model, trust=trust), formats, licence)

    def write_json(self, name: str, value: dict[str, Any]) -> None:
        """Replace one of the run's JSON files."""
        write_atomically(self.file(name), json.dumps(value, indent=1).encode())

    def stamp(self, *names: str) -> tuple[tuple[int, int], ...]:
        """A value that changes when one of these files is written to, made or removed."""
        return tuple(_stamp(self.file(name)) for name in names)

    @property
    def parent(self) -> dict[str, Any] | None:
        """What parent.json says of a branch: its parent, the round, and the changes; None: it isn't one."""
        return self.read_json("parent.json") if self.file("parent.json").exists() else None

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
    data = re.sub(r"[^\w.+-]", "_", experiment.data.title)[:60]  # a user's file has any name
    stem = f"{data}-{type(experiment.method).name}-{type(experiment.method.loss).name}"
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
    return [Run(directory.path) for directory in directories_in(folder)]
