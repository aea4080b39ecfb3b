"""Carrying out a run: from the first round, or from where it stopped."""

from __future__ import annotations

import json
import os
import platform
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from mnemos.engines.engine import Runner, engines
from mnemos.errors import ConfigError, DivergedError
from mnemos.experiment import Experiment
from mnemos.federation import Federation, Outcome
from mnemos.files import write_atomically
from mnemos.runs.checkpoint import Checkpoints
from mnemos.runs.run import Run, Status, create
from mnemos.runs.store import Store, read_metrics
from mnemos.vector import save_model
from mnemos.version import __version__


class Observer(Protocol):
    """Someone who watches a run: a progress bar, a tracker, a test."""

    def started(self, run: Run, experiment: Experiment, round: int) -> None:
        """The run is about to do the round after `round`."""

    def engine(self, runner: Runner) -> None:
        """The engine is known."""

    def round(self, outcome: Outcome) -> None:
        """A round is finished and saved."""

    def ended(self, run: Run, status: Status) -> None:
        """The run is over."""


class Silent:
    """An observer that says nothing."""

    def started(self, run: Run, experiment: Experiment, round: int) -> None:
        """Nothing."""

    def engine(self, runner: Runner) -> None:
        """Nothing."""

    def round(self, outcome: Outcome) -> None:
        """Nothing."""

    def ended(self, run: Run, status: Status) -> None:
        """Nothing."""


def start(experiment: Experiment, folder: Path, observer: Observer | None = None) -> Run:
    """A new run, carried out to its end."""
    # Everything that can be wrong with the experiment shows before a directory is made.
    with closing(Federation(experiment)) as federation:
        run = create(experiment, folder)
        with run.lock():
            run.write_json("environment.json", _environment())
            _carry_out(run, federation, observer or Silent())
    return run


def resume(path: Path | str, rounds: int | None = None, observer: Observer | None = None) -> Run:
    """Continue an interrupted run, or a finished one for more rounds."""
    run = Run.at(path)
    experiment = run.experiment
    with run.lock():
        if rounds is not None and rounds != experiment.rounds:
            done = _rounds_done(run)
            if rounds < done:
                raise ConfigError(f"found {rounds}; the run has {done} rounds already", "rounds")
            experiment = experiment.override({"rounds": rounds})
        with closing(Federation(experiment)) as federation:
            write_atomically(run.file("experiment.yaml"), experiment.to_yaml().encode())
            _carry_out(run, federation, observer or Silent())
    return run


def _carry_out(run: Run, federation: Federation, observer: Observer) -> None:
    rounds = federation.experiment.rounds
    checkpoints = Checkpoints(run.file("checkpoints"))
    with ExitStack() as stack:
        stack.enter_context(_stop_on_terminate())
        store = stack.enter_context(closing(Store(run.file("metrics.jsonl"))))
        store.rewind(checkpoints.restore(federation))
        status = Status("running", federation.round)
        run.write_json("status.json", asdict(status))
        observer.started(run, federation.experiment, federation.round)
        try:
            if federation.round < rounds:
                with _open(run, federation) as runner:
                    _rounds(run, federation, runner, store, checkpoints, observer)
            save_model(
                run.file("model.safetensors"),
                federation.layout,
                federation.server.model,
                federation.server.buffers,
            )
            status = Status("finished", federation.round, _accuracy(run, federation.experiment))
        except DivergedError as error:
            status = Status("diverged", federation.round, message=str(error))
            raise
        except KeyboardInterrupt:
            status = Status("interrupted", federation.round)
            raise
        except BaseException as error:
            status = Status("failed", federation.round, message=f"{type(error).__name__}: {error}")
            raise
        finally:
            run.write_json("status.json", asdict(status))
            observer.ended(run, status)


def _rounds(
    run: Run,
    federation: Federation,
    runner: Runner,
    store: Store,
    checkpoints: Checkpoints,
    observer: Observer,
) -> None:
    first = federation.round + 1
    with run.file("timing.jsonl").open("a") as timing:
        while federation.round < federation.experiment.rounds:
            begin = time.perf_counter()
            outcome = federation.advance(runner)
            if outcome.round == first:
                _record_engine(run, runner)
                observer.engine(runner)
            store.append(outcome.records)
            checkpoints.save(federation, store.size)
            seconds = time.perf_counter() - begin
            timing.write(json.dumps({"round": outcome.round, "seconds": round(seconds, 6)}) + "\n")
            timing.flush()
            observer.round(outcome)


def _open(run: Run, federation: Federation) -> Runner:
    """The experiment's engine, or the one an earlier part of the run has used: bits must not change."""
    if run.file("engine.json").is_file():
        engine = engines.parse(run.read_json("engine.json").get("engine"))
        federation.experiment = federation.experiment.model_copy(update={"engine": engine})
    return federation.open()


def _record_engine(run: Run, runner: Runner) -> None:
    run.write_json(
        "engine.json",
        {
            "engine": runner.engine.dump(),
            "arithmetic": runner.plan.arithmetic.model_dump(mode="json"),
            "why": runner.why,
        },
    )


def _accuracy(run: Run, experiment: Experiment) -> float | None:
    """Mean test accuracy over the last rounds that ask for it; validation's where there is no test."""
    metrics = run.metrics
    overall = metrics[metrics["client"].isna() & metrics["class"].isna() & metrics["task"].isna()]
    last = overall[overall["round"] > experiment.rounds - max(experiment.evaluate.test_last, 1)]
    for name in ("test_accuracy", "validation_accuracy"):
        values = last[last["name"] == name]["value"]
        if len(values):
            return float(values.mean())
    return None


def _rounds_done(run: Run) -> int:
    metrics = read_metrics(run.file("metrics.jsonl"))
    return int(metrics["round"].max()) if len(metrics) else 0


def _environment() -> dict[str, object]:
    return {
        "mnemos": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


@contextmanager
def _stop_on_terminate() -> Iterator[None]:
    """Treat a request to terminate like Ctrl-C: the run ends saved."""
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers can be set in the main thread only
        return

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
