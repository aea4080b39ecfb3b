"""Executing a run: a new one from its first round, or an interrupted one from its last checkpoint."""

from __future__ import annotations

import json
import logging
import platform
import time
from contextlib import closing, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from mnemos.client.trainer import fresh_model
from mnemos.common.activity import told_to
from mnemos.common.cores import cores
from mnemos.common.files import Lock, write_atomically
from mnemos.engines.engine import Engine, Runner
from mnemos.errors import ConfigError, DivergedError, PausedError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation, Outcome
from mnemos.measures.measure import Record
from mnemos.runs.checkpoint import Checkpoints
from mnemos.runs.directory import State, Status
from mnemos.runs.interrupts import stop_on_terminate, without_interrupts
from mnemos.runs.releases import Releases, SpentError
from mnemos.runs.run import Run, create
from mnemos.runs.stops import StoppedError, check_directory, stops
from mnemos.runs.store import Store, overall_values, read_metrics
from mnemos.runs.trained.description import HEADER, describe
from mnemos.runs.trust import Trust, remember_engine, remember_own
from mnemos.runs.used import UsedDevices, engine_for
from mnemos.vector import save_model
from mnemos.version import __version__

_log = logging.getLogger("mnemos")
_log.addHandler(logging.NullHandler())  # nothing is printed, unless the program that uses Mnemos asks for it


class Observer(Protocol):
    """What is told about a run while it goes on: a progress bar, a tracker, a test."""

    run: Run | None
    """The run, once it has a directory."""

    def started(self, run: Run, experiment: Experiment, round: int) -> None:
        """The run is about to do the round after `round`."""

    def warned(self, sentence: str) -> None:
        """A choice of the experiment is known to hurt its result; the sentence says which."""

    def preparing(self, done: int, total: int, note: str) -> None:
        """The model is being pre-trained: `done` of `total` steps are done; `note` says how well it goes."""

    def doing(self, what: str, share: float | None) -> None:
        """What is being done, in a few words; nothing once it is over.

        `share`, from 0 to 1, is how much of the round's training is done; None if it isn't part of one.
        """

    def engine(self, runner: Runner) -> None:
        """The engine has been chosen."""

    def round(self, outcome: Outcome) -> None:
        """A round is finished and saved."""

    def ended(self, run: Run, status: Status) -> None:
        """The run has ended, however it ended."""


class Silent:
    """An observer that remembers the run and does nothing else."""

    def __init__(self) -> None:
        self.run: Run | None = None

    def started(self, run: Run, experiment: Experiment, round: int) -> None:
        """Remember the run."""
        self.run = run

    def warned(self, sentence: str) -> None:
        """Do nothing."""

    def preparing(self, done: int, total: int, note: str) -> None:
        """Do nothing."""

    def doing(self, what: str, share: float | None) -> None:
        """Do nothing."""

    def engine(self, runner: Runner) -> None:
        """Do nothing."""

    def round(self, outcome: Outcome) -> None:
        """Do nothing."""

    def ended(self, run: Run, status: Status) -> None:
        """Do nothing."""


def start(experiment: Experiment, folder: Path, observer: Observer | None = None) -> Run:
    """Make a run directory in `folder`, execute the experiment to its end, and return the run."""
    remember_own(experiment)
    observer = observer or Silent()
    # Everything that can be wrong with the experiment is found before the directory is made.
    with (
        told_to(observer.doing),
        closing(Federation(experiment)) as federation,
        federation.open() as runner,
    ):
        federation.check_start()
        run = create(experiment, folder)
        with run.lock() as lock, stops(run, lock), closing(Store(run.file("metrics.jsonl"))) as store:
            run.write_json("environment.json", environment())
            federation.client_states.keep_in(run.file("clients.bin"))
            _account(run, federation)
            _execute(run, lock, federation, runner, store, observer)
    return run


def resume(
    path: Path | str,
    rounds: int | None = None,
    observer: Observer | None = None,
    engine: Engine | None = None,
    *,
    trust: Trust = False,
    device: str | list[str] | None = None,
) -> Run:
    """Continue an interrupted run, or a finished one until round `rounds`, and return it.

    `engine` is the engine that the run has used, if its options aren't enough to make it again. `trust` is as
    in `Run.load`. `device` names the devices to go on with, if not those that the run was made on.
    """
    run, observer = Run.at(path), observer or Silent()
    with told_to(observer.doing), run.lock() as lock, stops(run, lock):
        experiment = run.load(trust=trust)
        read_metrics(run.file("metrics.jsonl"))  # damage is found before anything is changed
        if rounds is not None:
            experiment = with_rounds(experiment, rounds)
        # Results must not change in the middle of a run, so it goes on with the engine that it began with.
        engine = engine or run.load_engine(trust=trust) or experiment.engine
        engine = engine_for(run, engine, experiment.engine, device)
        remember_own(experiment)  # with the names and options that experiment.yaml will have
        with (
            closing(Federation(experiment.model_copy(update={"engine": engine}))) as federation,
            federation.open() as runner,
            closing(Store(run.file("metrics.jsonl"))) as store,
        ):
            federation.client_states.keep_in(run.file("clients.bin"))
            _checkpoints(run).restore(federation, store)
            _account(run, federation)
            federation.retries.failed_attempts, federation.retries.failed_round = run.failed_attempts
            if federation.round > experiment.rounds:
                raise ConfigError(f"found {rounds}; the run has {federation.round} rounds already", "rounds")
            if federation.round < experiment.rounds:
                change = UsedDevices(run).change(runner, federation.round + 1)
                federation.warnings += (change,) if change else ()
            write_atomically(run.file("experiment.yaml"), experiment.to_yaml().encode())
            _execute(run, lock, federation, runner, store, observer)
    return run


def with_rounds(experiment: Experiment, rounds: int) -> Experiment:
    """The experiment of a run that goes on until another round; a `ConfigError` if it can't."""
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
    return experiment.override({"rounds": rounds})


def _execute(
    run: Run, lock: Lock, federation: Federation, runner: Runner, store: Store, observer: Observer
) -> None:
    """Do the rounds that are left, and write the model and how the run ended."""
    status = _status(federation, "running")
    run.write_json("status.json", asdict(status))
    if federation.guarantee is not None:
        run.write_json("privacy.json", federation.guarantee.facts())
    observer.started(run, federation.experiment, federation.round)
    _log.info("%s: started after round %d", run.path, federation.round)
    for sentence in federation.warnings:
        observer.warned(sentence)
        _log.warning("%s: %s", run.path, sentence)
    try:
        with stops(run, lock), stop_on_terminate():
            _begin(run, federation, observer)
            limit = _rounds(run, lock, federation, runner, store, observer)
            accuracy = _accuracy(run, federation.experiment)
            _save(run, federation, accuracy)
            if not limit and federation.guarantee is not None:
                limit = federation.guarantee.limit
            status = _status(federation, "finished", accuracy=accuracy, message=limit)
            run.write_json("status.json", asdict(status))
    except BaseException as error:
        status = _ended(error, run, federation)
        with suppress(OSError):  # the error that is raised says why it can't be written
            if lock.moved() is None:  # else the path may be another run's directory by now
                run.write_json("status.json", asdict(status))
        raise
    finally:
        observer.ended(run, status)
        _log.info("%s: %s after round %d", run.path, status.status, status.rounds)


def _save(run: Run, federation: Federation, accuracy: float | None) -> None:
    """Write the trained model, with what is needed to use it."""
    plan, server = federation.plan, federation.server
    about = describe(
        federation.dataset,
        plan.model,
        plan.method.head,
        batch_statistics=plan.method.buffers.in_batches,
        peers=tuple(federation.models.owners),
        experiment=run.experiment.hash(),
        rounds=federation.round,
        accuracy=accuracy,
    )
    save_model(
        run.file("model.safetensors"),
        fresh_model(plan, federation.dataset),
        server.model,
        server.buffers,
        {HEADER: about.model_dump_json()},
    )


def _ended(error: BaseException, run: Run, federation: Federation) -> Status:
    """The status of a run that an error has ended."""
    match error:
        case DivergedError():
            return _status(federation, "diverged", message=str(error))
        case PausedError():
            return _status(federation, "paused", message=str(error))
        case KeyboardInterrupt():
            return _status(federation, "interrupted")
        case StoppedError():
            return replace(_status(federation, "failed", message=str(error)), rounds=run.saved_rounds)
    return _status(federation, "failed", message=f"{type(error).__name__}: {error}")


def _status(
    federation: Federation, state: State, *, accuracy: float | None = None, message: str = ""
) -> Status:
    """The status of a run; every one says which round was tried in vain, so that a resume knows."""
    retries = federation.retries
    return Status(state, federation.round, accuracy, message, retries.failed_attempts, retries.failed_round)


def _begin(run: Run, federation: Federation, observer: Observer) -> None:
    """Set the model's initial weights.

    If they are a pre-trained encoder's, write its digest and description into start.json, because the cache
    or file that it comes from may be deleted later.
    """
    encoder = federation.load_start(observer.preparing)
    if encoder is not None:
        start = federation.experiment.start.dump()
        run.write_json("start.json", {"start": start, "encoder": encoder.digest, "about": encoder.about})
        if encoder.doubt:
            observer.warned(f"start: {encoder.doubt}")


def _account(run: Run, federation: Federation) -> None:
    """Let ε count the models that were released instead of the rounds, if the noise is drawn from a secret.

    Then a round that is done again gives another model, with other noise.
    """
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


def _rounds(
    run: Run, lock: Lock, federation: Federation, runner: Runner, store: Store, observer: Observer
) -> str:
    """Do the rounds that are left. Returns why the run ended early, or nothing if all rounds were done."""
    checkpoints, used, noted = _checkpoints(run), UsedDevices(run), None
    with run.file("timing.jsonl").open("a") as timing:
        while federation.round < federation.experiment.rounds:
            begin, chosen = time.perf_counter(), runner.choosing
            try:
                outcome = federation.advance(runner)
            except SpentError as error:
                store.append([Record(federation.round + 1, "epsilon", error.epsilon)])
                return str(error)
            with without_interrupts():  # a round that is finished is saved
                check_directory(run, lock)
                if noted != runner.engine:
                    noted = runner.engine
                    remember_engine(runner.engine)
                    if used.note(runner, outcome.round):
                        observer.engine(runner)
                store.append(outcome.records)
                checkpoints.save(federation, store)
                seconds = time.perf_counter() - begin - (runner.choosing - chosen)
                timing.write(json.dumps({"round": outcome.round, "seconds": round(seconds, 6)}) + "\n")
                timing.flush()
            observer.round(outcome)
            _log.info("%s: round %d, loss %.4g", run.path, outcome.round, outcome.loss)
            if outcome.stuck:
                raise DivergedError(outcome.stuck)
    return ""


def _checkpoints(run: Run) -> Checkpoints:
    return Checkpoints(run.file("checkpoints"))


def _accuracy(run: Run, experiment: Experiment) -> float | None:
    """The mean test accuracy over the last `evaluate.test_last` rounds; without a test, of validation."""
    records = list(run.records)
    for name in ("test_accuracy", "validation_accuracy"):
        values = overall_values(records, name)
        if values:
            first = experiment.rounds - max(experiment.evaluate.test_last, 1) + 1
            last = [value for round, value in values.items() if round >= first]
            return float(np.mean(last) if last else list(values.values())[-1])
    return None


def environment() -> dict[str, object]:
    """Versions and machine, for environment.json."""
    return {
        "mnemos": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "cores": cores(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
