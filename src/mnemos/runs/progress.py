"""How far a run has come, read from the ends of its files: cheap enough to look every second."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnemos.experiment import Experiment
from mnemos.plain import number, parse_json, whole
from mnemos.runs.run import Run, Status
from mnemos.runs.store import BY

_TAIL = 1 << 20
"""Bytes at the end of a file that are looked at: many rounds between two evaluations of many clients."""


@dataclass(frozen=True)
class Progress:
    """Where a run stands while it is going on."""

    status: Status
    round: int
    rounds: int
    accuracy: float | None
    """The newest evaluation's, on the test set where there was one; at the end the reported accuracy."""
    measured: str
    """Which accuracy that is: final, test or validation; nothing, if there is none."""
    seconds: float | None
    """A round's, the median of the newest."""

    @property
    def left(self) -> float | None:
        """Seconds until the last round, for a run that is going on."""
        if self.status.status != "running" or self.seconds is None:
            return None
        return self.seconds * (self.rounds - self.round)


def progress(run: Run, experiment: Experiment) -> Progress:
    """How far a run has come; `experiment` is its own, which a caller who looks often has read already."""
    status = run.status
    times = list(_newest_times(run.file("timing.jsonl")))
    accuracy, measured = status.accuracy, "final"
    if accuracy is None:
        accuracy, measured = _newest_accuracy(run.file("metrics.jsonl"))
    return Progress(
        status,
        times[-1][0] if times else status.rounds,
        experiment.rounds,
        accuracy,
        measured,
        statistics.median(seconds for _, seconds in times[-20:]) if times else None,
    )


def _newest_times(path: Path) -> Iterator[tuple[int, float]]:
    """(round, seconds), as far as they can be read: a damaged line costs a time, not the view."""
    for row in _last_rows(path, b'"seconds"'):
        with suppress(ValueError):
            yield whole(row.get("round")), number(row.get("seconds"))


def _newest_accuracy(path: Path) -> tuple[float | None, str]:
    newest: tuple[int, bool, float] | None = None
    for row in _last_rows(path, b'_accuracy"'):
        name, value = row.get("name"), row.get("value")
        of_all = not any(key in row for key in BY)
        if of_all and value is not None and name in ("test_accuracy", "validation_accuracy"):
            with suppress(ValueError):
                found = (whole(row.get("round")), name == "test_accuracy", number(value))
                newest = max(newest or found, found)
    return (newest[2], "test" if newest[1] else "validation") if newest else (None, "")


def _last_rows(path: Path, containing: bytes) -> Iterator[dict[str, Any]]:
    """The complete lines among a file's last bytes; only those with some bytes in them."""
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - _TAIL)
            file.seek(start)
            lines = file.read().split(b"\n")
    except OSError:
        return
    # The first may have lost its beginning, and the last its end.
    for line in lines[1 if start else 0 : -1]:
        if containing not in line:
            continue
        try:
            row = parse_json(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row
