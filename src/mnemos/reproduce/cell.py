"""A cell of a paper's table, or a line of its figure: its experiment, and what the paper reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from mnemos.errors import ConfigError
from mnemos.experiment import Experiment
from mnemos.plain import number
from mnemos.report.average import mean_of, std_of
from mnemos.runs.run import Run, find
from mnemos.runs.store import overall
from mnemos.runs.study import Case

ACCURACY = "accuracy"
"""The value of a cell unless the recipe names a metric: test accuracy as the experiment asks for it."""


@dataclass(frozen=True)
class Reported:
    """A number of a paper; with neither mean nor NC it can't be read in our copy, or there is none."""

    mean: float | None = None
    std: float | None = None
    converged: bool = True

    @classmethod
    def parse(cls, value: Any) -> Reported:
        """From a number, [mean, std], NC or nothing."""
        if value is None:
            return cls()
        if value == "NC":
            return cls(converged=False)
        numbers = value if isinstance(value, list | tuple) else [value]
        if 1 <= len(numbers) <= 2 and all(type(entry) in (int, float) for entry in numbers):
            return cls(number(numbers[0]), number(numbers[1]) if len(numbers) > 1 else None)
        raise ValueError(f"found {value!r}; allowed: a number, [mean, std], NC, or null")


@dataclass(frozen=True)
class Cell:
    """One experiment of a recipe."""

    row: tuple[str, ...]
    """A name on each axis that the rows are made of."""
    column: str
    experiment: Experiment
    reported: Reported = Reported()
    value: str = ACCURACY
    """A metric of the last round that has it, or the difference of two, `a - b`."""

    @property
    def row_name(self) -> str:
        """The row in a table."""
        return ", ".join(self.row)

    @property
    def name(self) -> str:
        """The cell in a message, and the name `--only` knows it by."""
        return f"{self.row_name}/{self.column}"

    def matches(self, pattern: str) -> bool:
        """Whether a pattern means this cell: its row (or one part of it), its column, or row/column."""
        rows = {self.row_name, *self.row}
        names = {*rows, self.column, *(f"{row}/{self.column}" for row in rows)}
        return any(fnmatchcase(name.casefold(), pattern.casefold()) for name in names)

    def cases(self, seeds: Iterable[int]) -> list[Case]:
        """Its runs, one a seed."""
        variant = f"{self.row_name}, {self.column}"
        return [Case(variant, self.experiment.model_copy(update={"seed": seed})) for seed in seeds]


@dataclass(frozen=True)
class Outcome:
    """A cell and its runs that have come to an end."""

    cell: Cell
    runs: tuple[Run, ...]
    values: tuple[float, ...]
    """Of the runs that converged."""
    diverged: int

    @property
    def mean(self) -> float | None:
        """Over the seeds that converged."""
        return mean_of(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        """Over the seeds that converged; of one there is none."""
        return std_of(self.values)

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        theirs, ours = self.cell.reported.mean, self.mean
        return None if theirs is None or ours is None else ours - theirs


def choose(cells: Sequence[Cell], patterns: Sequence[str]) -> list[Cell]:
    """The cells that any of the patterns means; all without patterns."""
    for pattern in patterns:
        if not any(cell.matches(pattern) for cell in cells):
            rows = dict.fromkeys(cell.row_name for cell in cells)
            columns = dict.fromkeys(cell.column for cell in cells)
            raise ConfigError(
                f"no cell matches '{pattern}'; rows: {'; '.join(rows)}; columns: {'; '.join(columns)}", "only"
            )
    return [cell for cell in cells if not patterns or any(cell.matches(pattern) for pattern in patterns)]


def collect(cell: Cell, seeds: Sequence[int], folder: Path) -> Outcome:
    """What a folder of runs has of a cell, by whoever it was run."""
    found = [find(case.experiment, folder) for case in cell.cases(seeds)]
    ended = [run for run in found if run is not None and run.ended]
    finished = [run for run in ended if run.status.status == "finished"]
    values = [value for value in (_value(run, cell.value) for run in finished) if value is not None]
    return Outcome(cell, tuple(ended), tuple(values), len(ended) - len(finished))


def _value(run: Run, name: str) -> float | None:
    if name == ACCURACY:
        return run.accuracy
    metrics = run.metrics
    last = [overall(metrics, part)["value"].dropna() for part in name.split(" - ")]
    if any(values.empty for values in last):
        return None
    first, *less = (float(values.iloc[-1]) for values in last)
    return first - sum(less)
