"""What a run's directory says about its state, read without PyTorch: a list of runs needn't wait for it."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from mnemos.common.files import try_lock
from mnemos.common.plain import parse_json
from mnemos.errors import DataError

PATTERN = "round-*.safetensors"
"""The names of checkpoints."""


def round_of(path: Path) -> int:
    """The round of a checkpoint, from its name."""
    return int(path.stem.removeprefix("round-"))


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
class RunDirectory:
    """The directory of a run."""

    path: Path

    def file(self, name: str) -> Path:
        """The path of a file in the run's directory."""
        return self.path / name

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
    def saved_rounds(self) -> int:
        """Rounds up to the newest checkpoint."""
        return max(map(round_of, self.file("checkpoints").rglob(PATTERN)), default=0)

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

    @property
    def locked(self) -> bool:
        """Whether a process is working on the run now."""
        return self.holds(".lock")

    def holds(self, name: str) -> bool:
        """Whether a process holds the lock of a file in the directory."""
        try:
            handle = os.open(self.file(name), os.O_RDONLY)  # it may be a run that this user can only read
        except OSError:
            return False  # no process has ever worked on it, or it is being removed
        try:
            return not try_lock(handle, fcntl.LOCK_SH)  # shared: several processes may look at once
        finally:
            os.close(handle)


def directories_in(folder: Path) -> list[RunDirectory]:
    """The directories of all runs in a folder and below it, sorted by path."""
    # Unlike `rglob`, `os.walk` tolerates directories that are removed meanwhile.
    found = (Path(path) for path, _, files in os.walk(folder) if "experiment.yaml" in files)
    return [RunDirectory(path) for path in sorted(found)]
