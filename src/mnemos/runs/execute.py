"""Carrying out a run: from the first round, or from where it stopped."""

from __future__ import annotations

import json
import platform
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from mnemos.client import fresh_model
from mnemos.cores import cores
from mnemos.engines.engine import Engine, Runner
from mnemos.errors import ConfigError, DataError, DivergedError, PausedError
from mnemos.experiment import Experiment
from mnemos.federation import Federation, Outcome
from mnemos.files import write_atomically
from mnemos.measures.measure import Record
from mnemos.runs.checkpoint import Checkpoints
from mnemos.runs.releases import Releases, SpentError
from mnemos.runs.run import Run, Status, create
from mnemos.runs.store import Store, overall, read_metrics
from mnemos.vector import save_model
from mnemos.version import __version__


class Observer(Protocol):
    """Someone who watches a run: a progress bar, a tracker, a test."""

    run: Run | None
    """The run, once it has a directory."""

    def started(self, run: Run, experiment: Experiment, round: int) -> None:
        """The run is about to do the round after `round`."""

    def warned(self, sentence: str) -> None:
        """Something about the experiment is known to hurt."""

    def preparing(self, done: int, total: int, note: str) -> None:
        """What the model starts from is being trained: so many steps are done, and how well it goes."""

    def engine(self, runner: Runner) -> None:
        """The engine is known."""

    def round(self, outcome: Outcome) -> None:
        """A round is finished and saved."""

    def ended(self, run: Run, status: Status) -> None:
        """The run is over."""


class Silent:
    """An observer that says nothing, and remembers the run."""

    def __init__(self) -> None:
        self.run: Run | None = None

    def started(self, run: Run, experiment: Experiment, round: int) -> None:
        """Remember the run."""
        self.run = run

    def warned(self, sentence: str) -> None:
        """Nothing."""

    def preparing(self, done: int, total: int, note: str) -> None:
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
    with closing(Federation(experiment)) as federation, federation.open() as runner:
        federation.check_start()
        run = create(experiment, folder)
        with run.lock(), closing(Store(run.file("metrics.jsonl"))) as store:
            run.write_json("environment.json", _environment())
            federation.states.keep_in(run.file("clients.bin"))
            _account(run, federation)
            _carry_out(run, federation, runner, store, observer or Silent())
    return run


def resume(
    path: Path | str,
    rounds: int | None = None,
    observer: Observer | None = None,
    engine: Engine | None = None,
) -> Run:
    """Continue an interrupted run, or a finished one for more rounds.

    `engine`: the same one, where it isn't enough to know its options.
    """
    run = Run.at(path)
    with run.lock():
        experiment = run.experiment
        read_metrics(run.file("metrics.jsonl"))  # damage shows before anything is changed
        in_vain = _in_vain(run)
        if rounds is not None:
            if experiment.stream.paced and rounds != experiment.rounds:
                raise ConfigError(
                    f"found {rounds}; the stream {type(experiment.stream).name} is laid out over the run's "
                    f"{experiment.rounds}",
                    "rounds",
                )
            if experiment.privacy.paced and rounds != experiment.rounds:
                raise ConfigError(
                    f"found {rounds}; the noise is made to last for the run's {experiment.rounds}", "rounds"
                )
            experiment = experiment.override({"rounds": rounds})
        # Bits must not change in the middle of a run: it goes on with the engine it has begun with.
        engine = engine or run.engine or experiment.engine
        with (
            closing(Federation(experiment.model_copy(update={"engine": engine}))) as federation,
            federation.open() as runner,
            closing(Store(run.file("metrics.jsonl"))) as store,
        ):
            federation.states.keep_in(run.file("clients.bin"))
            _checkpoints(run).restore(federation, store)
            _account(run, federation)
            federation.in_vain = in_vain
            if federation.round > experiment.rounds:
                raise ConfigError(f"found {rounds}; the run has {federation.round} rounds already", "rounds")
            write_atomically(run.file("experiment.yaml"), experiment.to_yaml().encode())
            _carry_out(run, federation, runner, store, observer or Silent())
    return run


def _carry_out(run: Run, federation: Federation, runner: Runner, store: Store, observer: Observer) -> None:
    """The rounds that are left, and how it ends."""
    status = Status("running", federation.round)
    run.write_json("status.json", asdict(status))
    if federation.guarantee is not None:
        run.write_json("privacy.json", federation.guarantee.facts())
    observer.started(run, federation.experiment, federation.round)
    for sentence in federation.warnings:
        observer.warned(sentence)
    try:
        with stop_on_terminate():
            _begin(run, federation, observer)
            limit = _rounds(run, federation, runner, store, observer)
        save_model(
            run.file("model.safetensors"),
            fresh_model(federation.plan, federation.dataset),
            federation.server.model,
            federation.server.buffers,
        )
        if not limit and federation.guarantee is not None:
            limit = federation.guarantee.limit
        status = Status("finished", federation.round, _accuracy(run, federation.experiment), limit)
    except DivergedError as error:
        status = Status("diverged", federation.round, message=str(error))
        raise
    except PausedError as error:
        status = Status("paused", federation.round, message=str(error), in_vain=federation.in_vain)
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


def _begin(run: Run, federation: Federation, observer: Observer) -> None:
    """What the model starts from; written down, as the cache or file it comes from may be gone one day."""
    encoder = federation.begin(observer.preparing)
    if encoder is not None:
        start = federation.experiment.start.dump()
        run.write_json("start.json", {"start": start, "encoder": encoder.digest, "about": encoder.about})
        if encoder.doubt:
            observer.warned(f"start: {encoder.doubt}")


def _account(run: Run, federation: Federation) -> None:
    """Have ε go by the models that somebody may have seen, where noise can't be taken off."""
    guarantee = federation.guarantee
    if guarantee is None or not guarantee.options.secret:
        return
    releases = Releases(run.file("releases"), guarantee)
    federation.spend = releases.spend
    first, last = federation.round + 1, releases.last
    if first <= last:
        rounds = f"round {first} is" if first == last else f"rounds {first} to {last} are"
        federation.warnings += (
            f"privacy: {rounds} done again, and may have been seen: if other clients answer, ε counts both",
        )


def _rounds(run: Run, federation: Federation, runner: Runner, store: Store, observer: Observer) -> str:
    """The rounds that are left; gives the reason if they can't all be done."""
    checkpoints, recorded = _checkpoints(run), run.engine
    with run.file("timing.jsonl").open("a") as timing:
        while federation.round < federation.experiment.rounds:
            begin = time.perf_counter()
            try:
                outcome = federation.advance(runner)
            except SpentError as error:
                store.append([Record(federation.round + 1, "epsilon", error.epsilon)])
                return str(error)
            if recorded != runner.engine:
                _record_engine(run, runner)
                recorded = runner.engine
                observer.engine(runner)
            store.append(outcome.records)
            checkpoints.save(federation, store)
            seconds = time.perf_counter() - begin
            timing.write(json.dumps({"round": outcome.round, "seconds": round(seconds, 6)}) + "\n")
            timing.flush()
            observer.round(outcome)
            if outcome.stuck:
                raise DivergedError(outcome.stuck)
    return ""


def _in_vain(run: Run) -> int:
    """How often the next round of a paused run was tried."""
    try:
        return run.status.in_vain
    except DataError:
        return 0  # what is known of its end is damaged, which a resume mends


def _checkpoints(run: Run) -> Checkpoints:
    return Checkpoints(run.file("checkpoints"))


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
    for name in ("test_accuracy", "validation_accuracy"):
        values = overall(metrics, name).set_index("round")["value"]
        if len(values):
            first = experiment.rounds - max(experiment.evaluate.test_last, 1) + 1
            last = values[values.index >= first]
            return float(last.mean() if len(last) else values.iloc[-1])
    return None


def _environment() -> dict[str, object]:
    return {
        "mnemos": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "cores": cores(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


@contextmanager
def stop_on_terminate() -> Iterator[None]:
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
