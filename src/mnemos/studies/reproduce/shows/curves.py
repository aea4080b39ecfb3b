"""Figures of accuracy, or another metric, over rounds."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from mnemos.plots.curves import draw_curves
from mnemos.studies.reproduce.show import RecipeResults, Show, Shown, file_name, shows
from mnemos.studies.reproduce.table import side_by_side


@shows.register("curves")
class CurvesShow(Show):
    """A figure for each column and metric, with a line for each row; and a table of the final accuracies."""

    metrics: tuple[str, ...] = Field(("validation_accuracy",), min_length=1)
    """The metrics to draw; their values of the whole federation."""

    def show(self, results: RecipeResults, folder: Path) -> Shown:
        """Draw the columns of which some cell has been run."""
        figures = []
        for column, outcomes in results.columns.items():
            groups = {outcome.cell.row_name: outcome.runs for outcome in outcomes if outcome.runs}
            for metric in self.metrics if groups else ():
                name = file_name(column, *([metric] if len(self.metrics) > 1 else []))
                figures.append(draw_curves(groups, folder / f"curves-{name}.png", metric, column))
        return Shown(side_by_side(results.outcomes), figures)
