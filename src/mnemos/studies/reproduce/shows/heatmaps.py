"""Heat-maps of the forgetting matrices of some rounds."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from mnemos.plots.forgetting_maps import draw_heatmaps
from mnemos.runs.forgetting_matrix import measured_rounds
from mnemos.studies.reproduce.scale import scaled_round
from mnemos.studies.reproduce.show import RecipeResults, Show, Shown, file_name, shows
from mnemos.studies.reproduce.shows._forgotten import forgetting_sheet


@shows.register("heatmaps")
class HeatmapsShow(Show):
    """A figure for each column: forgetting, and accuracy after local training, of each row's first seed."""

    rounds: tuple[int, ...] = Field(min_length=1)
    """The paper's rounds; at a smaller scale they are multiplied by it."""

    def show(self, results: RecipeResults, folder: Path) -> Shown:
        """Draw the runs that measured forgetting in any of the rounds."""
        rounds = list(dict.fromkeys(scaled_round(round, results.scale) for round in self.rounds))
        figures = []
        for column, outcomes in results.columns.items():
            runs = {
                f"{outcome.cell.row_name}, seed {run.experiment.seed}": run
                for outcome in outcomes
                for run in outcome.runs[:1]
                if set(rounds) & set(measured_rounds(run.metrics))
            }
            if runs:
                path = folder / f"heatmaps-{file_name(column)}.png"
                figures.append(draw_heatmaps(runs, rounds, path, f"Local client forgetting, {column}"))
        return Shown(forgetting_sheet(results.outcomes, rounds), figures)
