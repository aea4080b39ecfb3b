"""Carrying out an experiment of a study: once, whoever else is at work in the same folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from mnemos.errors import ConfigError, DivergedError
from mnemos.experiment import Experiment
from mnemos.federation import Federation
from mnemos.privacy.privacy import NoPrivacy
from mnemos.runs.execute import Observer, resume, start
from mnemos.runs.run import BusyError, Run, find
from mnemos.runs.study import Case


def check(cases: Iterable[Case], folder: Path) -> list[int]:
    """Find what is wrong with the last variant before the first one trains; runs will go into the folder.

    Gives the number of rounds each will have: a privacy budget may not allow all.
    """
    allowed: dict[str, int | None] = {}
    rounds = []
    for case in cases:
        kind = _without_numbers(case.experiment).hash()
        if kind not in allowed:  # a federation takes a moment, and a grid has hundreds
            allowed[kind] = _allowed(case, folder)
        rounds.append(allowed[kind] or case.experiment.rounds)
    return rounds


def _allowed(case: Case, folder: Path) -> int | None:
    """How many rounds there can be, if something limits them."""
    try:
        with closing(Federation(case.experiment)) as federation:
            if find(case.experiment, folder) is None:  # one that has begun doesn't start again
                federation.check_start()
            return None if federation.guarantee is None else federation.guarantee.rounds
    except ConfigError as error:
        raise ConfigError(str(error), f"variant '{case.variant}'") from None


def _without_numbers(experiment: Experiment) -> Experiment:
    """The experiment without what nothing can contradict: how large the steps, which seed, and how long."""
    local = experiment.local.model_copy(update={"lr": 1.0, "weight_decay": 0.0})
    rounds = 1 if isinstance(experiment.privacy, NoPrivacy) else experiment.rounds  # a budget may have a say
    return experiment.model_copy(update={"local": local, "rounds": rounds, "seed": 0})


def make_folder(folder: Path) -> None:
    """A folder for runs; where there can't be one, the error says why."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror if folder.is_dir() or not folder.exists() else "it is not a folder"
        raise ConfigError(f"{folder}: runs can't be kept there ({reason})") from None


def perform(experiment: Experiment, folder: Path, observer: Observer) -> Run:
    """The experiment's run: one that has ended already, one that is taken up again, or a new one.

    A run that does not converge is a result like any other. `BusyError`: another process has it;
    `PausedError`: it can't go on for now.
    """
    known = find(experiment, folder)
    if known is not None and known.ended:
        return known
    with _claim(experiment, folder):
        known = find(experiment, folder)  # someone else may have made it or ended it by now
        try:
            if known is None:
                return start(experiment, folder, observer)
            return known if known.ended else resume(known.path, observer=observer)
        except DivergedError:
            assert observer.run is not None
            return observer.run


@contextmanager
def _claim(experiment: Experiment, folder: Path) -> Iterator[None]:
    """Be the only one who makes or goes on with a run of this experiment in the folder.

    A run's own lock can't do that, for it comes with the directory. One file serves all experiments: each
    has a byte of it to lock, and the system lets go of the lock when the process ends, however it ends.
    """
    make_folder(folder)
    try:
        handle = os.open(folder / ".claims", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ConfigError(f"{folder}: runs can't be kept there ({error.strerror})") from None
    try:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int(experiment.hash(), 16))
        except (BlockingIOError, PermissionError):
            raise BusyError(f"{folder}: another process is working on a run of this experiment") from None
        yield
    finally:
        os.close(handle)
