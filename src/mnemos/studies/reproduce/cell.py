"""A cell of a paper's table, or a line of its figure: its experiment, the paper's number, and our runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from mnemos.common.plain import number
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.report.average import mean_of, std_of
from mnemos.runs.find import find
from mnemos.runs.run import Run
from mnemos.runs.store import overall
from mnemos.studies.study import Case

ACCURACY = "accuracy"
"""The value of a cell unless the recipe names a metric: the accuracy that the run reports."""


@dataclass(frozen=True)
class Reported:
    """A number that a paper reports."""

    mean: float | None = None
    """None if the paper has no number, if it can't be read in our copy, or if the run didn't converge."""
    std: float | None = None
    converged: bool = True
    """False if the paper says that the run didn't converge (NC)."""

    @classmethod
    def parse(cls, value: Any) -> Reported:
        """Parse a number, [mean, std], "NC" or None."""
        if value is None:
            return cls()
        if value == "NC":
            return cls(converged=False)
        numbers = value if isinstance(value, list | tuple) else [value]
        if 1 <= len(numbers) <= 2 and all(type(entry) in (int, float) for entry in numbers):
            return cls(number(numbers[0]), number(numbers[1]) if len(numbers) > 1 else None)
        raise ValueError(f"found {value!r}; allowed: a number, [mean, std], NC, or null")


@dataclass(frozen=True)
class RecipeCell:
    """One experiment of a recipe."""

    row: tuple[str, ...]
    """The row's name on each axis that rows are combined from."""
    column: str
    experiment: Experiment
    reported: Reported = Reported()
    value: str = ACCURACY
    """A metric of the last round that has it, or the difference of two, `a - b`."""

    @property
    def row_name(self) -> str:
        """The row's name in a table."""
        return ", ".join(self.row)

    @property
    def name(self) -> str:
        """The cell's name in messages and for `--only`."""
        return f"{self.row_name}/{self.column}"

    def matches(self, pattern: str) -> bool:
        """Whether a pattern matches the cell's row (or a part of its name), its column, or row/column."""
        rows = {self.row_name, *self.row}
        names = {*rows, self.column, *(f"{row}/{self.column}" for row in rows)}
        return any(fnmatchcase(name.casefold(), pattern.casefold()) for name in names)

    def cases(self, seeds: Iterable[int]) -> list[Case]:
        """The cell's cases, one for each seed."""
        variant = f"{self.row_name}, {self.column}"
        return [Case(variant, self.experiment.model_copy(update={"seed": seed})) for seed in seeds]


@dataclass(frozen=True)
class CellOutcome:
    """A cell and those of its runs that have ended."""

    cell: RecipeCell
    runs: tuple[Run, ...]
    values: tuple[float, ...]
    """The values of the runs that converged."""
    diverged: int
    """The number of runs that did not converge."""

    @property
    def mean(self) -> float | None:
        """The mean over the seeds that converged; None without any."""
        return mean_of(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        """The standard deviation over the seeds that converged; None for fewer than two."""
        return std_of(self.values)

    @property
    def difference(self) -> float | None:
        """Our mean minus the paper's; None if either is missing."""
        theirs, ours = self.cell.reported.mean, self.mean
        return None if theirs is None or ours is None else ours - theirs


def choose(cells: Sequence[RecipeCell], patterns: Sequence[str]) -> list[RecipeCell]:
    """The cells that match any of the patterns; all cells without patterns."""
    for pattern in patterns:
        if not any(cell.matches(pattern) for cell in cells):
            rows = dict.fromkeys(cell.row_name for cell in cells)
            columns = dict.fromkeys(cell.column for cell in cells)
            raise ConfigError(
                f"no cell matches '{pattern}'; rows: {'; '.join(rows)}; columns: {'; '.join(columns)}", "only"
            )
    return [cell for cell in cells if not patterns or any(cell.matches(pattern) for pattern in patterns)]


def collect(cell: RecipeCell, seeds: Sequence[int], folder: Path) -> CellOutcome:
    """Find the ended runs of a cell in a folder, whichever command made them."""
    found = [find(case.experiment, folder) for case in cell.cases(seeds)]
    ended = [run for run in found if run is not None and run.ended]
    finished = [run for run in ended if run.status.status == "finished"]
    values = [value for value in (_value(run, cell.value) for run in finished) if value is not None]
    return CellOutcome(cell, tuple(ended), tuple(values), len(ended) - len(finished))


def _value(run: Run, name: str) -> float | None:
    """A run's value in the table: its accuracy, the last value of a metric, or `a - b` for two metrics."""
    if name == ACCURACY:
        return run.accuracy
    metrics = run.metrics
    last = [overall(metrics, part)["value"].dropna() for part in name.split(" - ")]
    if any(values.empty for values in last):
        return None
    first, *less = (float(values.iloc[-1]) for values in last)
    return first - sum(less)
