"""Mean forgetting over rounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mnemos.errors import ConfigError
from mnemos.experiment import Experiment
from mnemos.measures.forgetting import is_due
from mnemos.report.curves import draw_curves
from mnemos.reproduce.show import Results, Show, Shown, file_name, shows
from mnemos.reproduce.shows._forgotten import forgetting_sheet
from mnemos.runs.forgetting import measured_rounds


@shows.register("forgetting")
class Forgetting(Show):
    """A figure a column, with a line a row: the mean of F_k in the rounds that were measured."""

    def show(self, results: Results, folder: Path) -> Shown:
        """The sheet has the first measured round, the middle one and the last."""
        figures = []
        for column, outcomes in results.columns.items():
            groups = {
                one.cell.row_name: [run for run in one.runs if measured_rounds(run.metrics)]
                for one in outcomes
            }
            groups = {row: runs for row, runs in groups.items() if runs}
            if groups:
                path = folder / f"forgetting-{file_name(column)}.png"
                figures.append(draw_curves(groups, path, "forgetting", column))
        return Shown(forgetting_sheet(results.outcomes, _rounds(results)), figures)


def _rounds(results: Results) -> list[int]:
    """The first, middle and last of the rounds that all cells measure."""
    experiments = [one.cell.experiment for one in results.outcomes]
    common = sorted(set.intersection(*({*_measured(experiment)} for experiment in experiments)))
    if not common:
        raise ConfigError("its cells measure forgetting in no common round", "show")
    return sorted({common[0], common[len(common) // 2], common[-1]})


def _measured(experiment: Experiment) -> Iterator[int]:
    last = experiment.rounds
    return (number for number in range(1, last + 1) if is_due(experiment.evaluate.forgetting, number, last))
