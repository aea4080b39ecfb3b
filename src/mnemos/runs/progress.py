"""How far a run has come, read from the ends of its files, which is cheap enough to do every second."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnemos.common.plain import number, parse_json, whole
from mnemos.experiment.experiment import Experiment
from mnemos.runs.directory import Status
from mnemos.runs.run import Run
from mnemos.runs.store import BY

_TAIL = 1 << 20
"""Bytes that are read at the end of a file. There can be many rounds with many clients' records between two
evaluations."""


@dataclass(frozen=True)
class RunProgress:
    """How far a run has come."""

    status: Status
    round: int
    rounds: int
    accuracy: float | None
    """The newest test accuracy, or validation accuracy without a test; once finished, the reported one."""
    measured: str
    """Which accuracy that is: final, test or validation; empty if there is none."""
    seconds: float | None
    """Seconds a round: the median of the newest twenty."""

    @property
    def left(self) -> float | None:
        """Seconds until the last round; None if the run isn't running or has no finished round."""
        if self.status.status != "running" or self.seconds is None:
            return None
        return self.seconds * (self.rounds - self.round)


def progress(run: Run, experiment: Experiment) -> RunProgress:
    """How far a run has come. `experiment` is the run's; a caller that looks often reads it once."""
    status = run.status
    times = list(_newest_times(run.file("timing.jsonl")))
    accuracy, measured = status.accuracy, "final"
    if accuracy is None:
        accuracy, measured = _newest_accuracy(run.file("metrics.jsonl"))
    return RunProgress(
        status,
        times[-1][0] if times else status.rounds,
        experiment.rounds,
        accuracy,
        measured,
        statistics.median(seconds for _, seconds in times[-20:]) if times else None,
    )


def _newest_times(path: Path) -> Iterator[tuple[int, float]]:
    """The newest rounds and their seconds; damaged lines are skipped."""
    for row in _last_rows(path, b'"seconds"'):
        with suppress(ValueError):
            yield whole(row.get("round")), number(row.get("seconds"))


def _newest_accuracy(path: Path) -> tuple[float | None, str]:
    """The newest accuracy of the global model, and `test` or `validation`; test wins in the same round."""
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
    """The JSON objects in complete lines among a file's last bytes, of lines that contain `containing`."""
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - _TAIL)
            file.seek(start)
            lines = file.read().split(b"\n")
    except OSError:
        return
    # The first line may lack its beginning, and the last its end.
    for line in lines[1 if start else 0 : -1]:
        if containing not in line:
            continue
        try:
            row = parse_json(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row
