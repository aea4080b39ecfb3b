"""Who forgot what in a round."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from mnemos.report.forgetting import draw_heatmaps
from mnemos.reproduce.scale import scaled_round
from mnemos.reproduce.show import Results, Show, Shown, file_name, shows
from mnemos.reproduce.shows._forgotten import forgetting_sheet
from mnemos.runs.forgetting import measured_rounds


@shows.register("heatmaps")
class Heatmaps(Show):
    """A figure a column: forgetting, and accuracy after local training, of each row's first seed."""

    rounds: tuple[int, ...] = Field(min_length=1)
    """Rounds of the paper; at a smaller scale, where they come to lie."""

    def show(self, results: Results, folder: Path) -> Shown:
        """Runs that ended before the first of the rounds aren't drawn."""
        rounds = list(dict.fromkeys(scaled_round(number, results.scale) for number in self.rounds))
        figures = []
        for column, outcomes in results.columns.items():
            runs = {
                f"{one.cell.row_name}, seed {run.experiment.seed}": run
                for one in outcomes
                for run in one.runs[:1]
                if set(rounds) & set(measured_rounds(run.metrics))
            }
            if runs:
                path = folder / f"heatmaps-{file_name(column)}.png"
                figures.append(draw_heatmaps(runs, rounds, path, f"Local client forgetting, {column}"))
        return Shown(forgetting_sheet(results.outcomes, rounds), figures)
