"""Running an experiment of a study exactly once, even if other processes work in the same folder."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from mnemos.errors import ConfigError, DivergedError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.privacy.privacy import NoPrivacy
from mnemos.runs.execute import Observer, resume, start
from mnemos.runs.find import find
from mnemos.runs.run import BusyError, Run
from mnemos.runs.trust import remember_own
from mnemos.studies.study import Case


def check(cases: Iterable[Case], folder: Path) -> list[int]:
    """Check every case before the first one trains; raise a ConfigError that names the variant.

    Returns the number of rounds that each case will have, because a privacy budget may not allow all of them.
    `folder` is where the runs are kept.
    """
    allowed: dict[str, int | None] = {}
    rounds = []
    for case in cases:
        kind = _without_numbers(case.experiment).hash()
        if kind not in allowed:  # making a federation takes a moment, and a grid has hundreds of cases
            allowed[kind] = _allowed(case, folder)
        rounds.append(allowed[kind] or case.experiment.rounds)
    return rounds


def _allowed(case: Case, folder: Path) -> int | None:
    """Check a case. Returns how many rounds its privacy budget allows; None without a budget."""
    try:
        with closing(Federation(case.experiment)) as federation:
            if find(case.experiment, folder) is None:  # a run that has begun doesn't start again
                federation.check_start()
            return None if federation.guarantee is None else federation.guarantee.rounds
    except ConfigError as error:
        raise ConfigError(str(error), f"variant '{case.variant}'") from None


def _without_numbers(experiment: Experiment) -> Experiment:
    """The experiment with fixed values for settings that no check depends on, such as the learning rate."""
    local = experiment.local.model_copy(update={"lr": 1.0, "weight_decay": 0.0})
    rounds = 1 if isinstance(experiment.privacy, NoPrivacy) else experiment.rounds  # a budget depends on them
    return experiment.model_copy(update={"local": local, "rounds": rounds, "seed": 0})


def make_folder(folder: Path) -> None:
    """Make the folder for runs; a ConfigError says why it can't be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror if folder.is_dir() or not folder.exists() else "it is not a folder"
        raise ConfigError(f"{folder}: runs can't be kept there ({reason})") from None


def perform(experiment: Experiment, folder: Path, observer: Observer) -> Run:
    """The experiment's run in the folder: one that has ended already, one that is resumed, or a new one.

    A run that does not converge is returned like any other. Raises BusyError if another process works on it,
    and PausedError if it can't go on for now.
    """
    known = find(experiment, folder)
    if known is not None and known.ended:
        return known
    remember_own(experiment)  # the user names this code, so a run of the same experiment may use it too
    with _claim(experiment, folder):
        known = find(experiment, folder)  # another process may have made it or ended it by now
        try:
            if known is None:
                return start(experiment, folder, observer)
            return known if known.ended else resume(known.path, observer=observer)
        except DivergedError:
            assert observer.run is not None
            return observer.run


@contextmanager
def _claim(experiment: Experiment, folder: Path) -> Iterator[None]:
    """Exclude other processes from making or resuming a run of this experiment in the folder.

    A run's own lock can't do that, because it is made with the run's directory. One file serves all
    experiments: each locks a byte of its own, and the system unlocks it when the process ends.
    """
    make_folder(folder)
    byte = int(experiment.hash(), 16)
    with _claims(folder) as handle:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except (BlockingIOError, PermissionError):
            raise BusyError(f"{folder}: another process is working on a run of this experiment") from None
        try:
            yield
        finally:
            fcntl.lockf(handle, fcntl.LOCK_UN, 1, byte)


_opening = threading.Lock()
_opened: dict[Path, tuple[int, int]] = {}
"""The files of claims that this process has open: their handles, and how many runs use each."""


@contextmanager
def _claims(folder: Path) -> Iterator[int]:
    """The handle of a folder's file of claims.

    All runs of this process share it, because a process that closes one of several handles of a file loses
    all its locks on the file.
    """
    path = folder.absolute() / ".claims"
    with _opening:
        try:
            handle, users = _opened.get(path) or (os.open(path, os.O_RDWR | os.O_CREAT, 0o644), 0)
        except OSError as error:
            raise ConfigError(f"{folder}: runs can't be kept there ({error.strerror})") from None
        _opened[path] = handle, users + 1
    try:
        yield handle
    finally:
        with _opening:
            handle, users = _opened.pop(path)
            if users > 1:
                _opened[path] = handle, users - 1
            else:
                os.close(handle)
