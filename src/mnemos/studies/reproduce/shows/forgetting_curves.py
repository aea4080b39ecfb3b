"""Figures of mean forgetting over rounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.measures.forgetting import is_due
from mnemos.plots.curves import draw_curves
from mnemos.runs.forgetting_matrix import measured_rounds
from mnemos.studies.reproduce.show import RecipeResults, Show, Shown, file_name, shows
from mnemos.studies.reproduce.shows._forgotten import forgetting_sheet


@shows.register("forgetting")
class ForgettingShow(Show):
    """A figure for each column, with a line for each row: the mean of F_k in the rounds that measured it."""

    def show(self, results: RecipeResults, folder: Path) -> Shown:
        """Draw the columns that have been run; the sheet has the first, middle and last measured round."""
        figures = []
        for column, outcomes in results.columns.items():
            groups = {
                outcome.cell.row_name: [run for run in outcome.runs if measured_rounds(run.metrics)]
                for outcome in outcomes
            }
            groups = {row: runs for row, runs in groups.items() if runs}
            if groups:
                path = folder / f"forgetting-{file_name(column)}.png"
                figures.append(draw_curves(groups, path, "forgetting", column))
        return Shown(forgetting_sheet(results.outcomes, _rounds(results)), figures)


def _rounds(results: RecipeResults) -> list[int]:
    """The first, middle and last of the rounds that all cells measure."""
    experiments = [outcome.cell.experiment for outcome in results.outcomes]
    common = sorted(set.intersection(*({*_measured(experiment)} for experiment in experiments)))
    if not common:
        raise ConfigError("its cells measure forgetting in no common round", "show")
    return sorted({common[0], common[len(common) // 2], common[-1]})


def _measured(experiment: Experiment) -> Iterator[int]:
    """The rounds in which an experiment measures forgetting."""
    last = experiment.rounds
    return (round for round in range(1, last + 1) if is_due(experiment.forgetting_rounds, round, last))
