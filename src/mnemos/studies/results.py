"""The results of a study's cases: how each ended, by variant, and what is left to do."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mnemos.errors import ConfigError
from mnemos.runs.find import find
from mnemos.runs.run import Run
from mnemos.studies.study import Case, record

if TYPE_CHECKING:
    import pandas as pd

    from mnemos.plots.style import Picture


@dataclass(frozen=True)
class Result:
    """How a case ended."""

    case: Case
    run: Run | None
    """None if it failed before it had a directory."""
    status: str
    """finished, diverged, failed, interrupted or paused."""
    message: str = ""
    """Why it failed or did not converge."""

    @classmethod
    def of(cls, case: Case, run: Run) -> Result:
        """The result of a case whose run has ended."""
        status = run.status
        return cls(case, run, status.status, status.message)


class Results(list[Result]):
    """The results of a study's cases, in the cases' order."""

    def __repr__(self) -> str:
        return f"<Results: {len(self)} runs, {len(self.runs)} variants, {len(self.failed)} failed>"

    def _repr_html_(self) -> str:
        html: str = self.table().to_html(float_format="{:.4g}".format)
        return html

    def table(self) -> pd.DataFrame:
        """A data frame with a row per run: variant, seed, status, accuracy."""
        import pandas as pd  # slow to import

        rows = [
            (
                result.case.variant,
                result.case.experiment.seed,
                result.status,
                result.run and result.run.accuracy,
            )
            for result in self
        ]
        return pd.DataFrame(rows, columns=["variant", "seed", "status", "accuracy"])

    def plot(self, name: str | None = None) -> Picture:
        """A curve over the rounds for each variant: the mean over its seeds, in a band of one deviation.

        `name` is a number of the whole federation, by default the accuracy. Notebooks show the figure, and
        `results.plot().save("curves.pdf")` writes it.
        """
        from mnemos.plots.of_runs import curves  # slow to import

        return curves(self.runs, name)

    def plot_forgetting(self, *rounds: int, classes: bool = False) -> Picture:
        """Heat-maps of the forgetting in `rounds`, variants side by side, of the first seed of each.

        By default of the last round in which all variants measured it. With `classes` the maps are of what
        was forgotten of each class.
        """
        from mnemos.plots.of_runs import heat_maps

        first = {variant: runs[0] for variant, runs in self.runs.items() if runs}
        return heat_maps(first, rounds, classes=classes)

    @property
    def runs(self) -> dict[str, list[Run]]:
        """The runs of each variant, without those that failed before they had a directory."""
        found: dict[str, list[Run]] = {result.case.variant: [] for result in self}
        for result in self:
            if result.run is not None:
                found[result.case.variant].append(result.run)
        return found

    def accuracies(self, variant: str) -> list[float]:
        """The final accuracies of the runs of a variant that converged."""
        values = [result.run.accuracy for result in self.of(variant, "finished") if result.run]
        return [value for value in values if value is not None]

    def diverged(self, variant: str) -> int:
        """How many of a variant's runs did not converge."""
        return len(self.of(variant, "diverged"))

    def of(self, variant: str, *status: str) -> list[Result]:
        """The results of a variant whose status is one of `status`."""
        return [result for result in self if result.case.variant == variant and result.status in status]

    @property
    def failed(self) -> list[Result]:
        """The cases without a result: they failed, were interrupted or have paused."""
        return [result for result in self if result.status in {"failed", "interrupted", "paused"}]


class Ledger:
    """The runs and results of a study's cases while they are run. Each experiment is one entry."""

    def __init__(self, cases: Sequence[Case], folder: Path, name: str | None) -> None:
        """`folder` has the runs; with a `name`, the study is recorded there under it."""
        self._folder = folder
        self._name = name
        self._cases = [(case, case.experiment.hash()) for case in cases]
        self._runs: dict[str, Run] = {}
        self._results: dict[str, Result] = {}
        self.left: list[Case] = []
        """The cases that have no result yet, one for each experiment."""
        seen = set()
        for case, key in self._cases:
            run = None if key in seen else find(case.experiment, folder)
            if run is not None and run.ended:
                self.enter(Result.of(case, run))
            elif key not in seen:
                self.left.append(case)
            seen.add(key)

    def begin(self, case: Case, run: Run) -> None:
        """Note that a case has a run directory."""
        self._runs[case.experiment.hash()] = run
        with suppress(ConfigError):  # it is for reports alone; the study goes on, and tries again at its end
            self.write()

    def enter(self, result: Result) -> None:
        """Note the result of a case."""
        key = result.case.experiment.hash()
        self._results[key] = result
        if result.run is not None:
            self._runs[key] = result.run

    def results(self) -> Results:
        """The results so far, in the cases' order."""
        known = ((case, self._results[key]) for case, key in self._cases if key in self._results)
        return Results(replace(result, case=case) for case, result in known)

    def write(self) -> None:
        """Write the record of the study, which says which runs belong to which variant."""
        runs: dict[str, list[Run]] = {case.variant: [] for case, _ in self._cases}
        for case, key in self._cases:
            if key in self._runs:
                runs[case.variant].append(self._runs[key])
        if self._name is not None and self._runs:
            record(self._name, self._folder, runs)
