"""A CSV file for spreadsheets and other tools; needs no package."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import Field

from mnemos.common.files import write_atomically
from mnemos.runs.directory import Status
from mnemos.runs.run import Run
from mnemos.track.sink import FINAL, Channel, Sink, Values, sinks

_COLUMNS = ("run", "round", "name", "value")


@sinks.register("csv")
class Csv(Sink):
    """A row for each number: run, round, name, value. Files of several runs can be concatenated."""

    folder: str | None = Field(None, min_length=1)
    """The folder for RUN.csv; if left out, the file is metrics.csv in the run's directory."""

    def open(self, run: Run, round: int) -> Channel:
        """Begin a new file, which gets all rounds of the run again, so no row is there twice or cut off."""
        path = run.file("metrics.csv")
        if self.folder is not None:
            path = Path(self.folder).expanduser() / f"{run.path.name}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, _rows([_COLUMNS]).encode())
        return _File(path, run.path.name)


class _File:
    """An open CSV file."""

    reached = 0

    def __init__(self, path: Path, run: str) -> None:
        self._path = path
        self._run = run

    def log(self, rounds: Mapping[int, Values]) -> None:
        """Append a row for each number."""
        self._append(
            (self._run, round, name, value)
            for round, values in rounds.items()
            for name, value in values.items()
        )

    def close(self, status: Status) -> None:
        """Append the final accuracy."""
        if status.accuracy is not None:
            self._append([(self._run, status.rounds, FINAL, status.accuracy)])

    def _append(self, rows: Iterable[tuple[object, ...]]) -> None:
        with self._path.open("a", encoding="utf-8", newline="") as file:
            file.write(_rows(rows))


def _rows(rows: Iterable[tuple[object, ...]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
