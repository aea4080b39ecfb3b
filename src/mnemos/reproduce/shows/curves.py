"""Accuracy, or another metric, over rounds."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from mnemos.report.curves import draw_curves
from mnemos.reproduce.show import Results, Show, Shown, file_name, shows
from mnemos.reproduce.table import side_by_side


@shows.register("curves")
class Curves(Show):
    """A figure a column (and metric), with a line a row; and the accuracies at the end."""

    metrics: tuple[str, ...] = Field(("validation_accuracy",), min_length=1)
    """What to draw, of the whole federation."""

    def show(self, results: Results, folder: Path) -> Shown:
        """A column of which nothing has been run has no figure."""
        figures = []
        for column, outcomes in results.columns.items():
            groups = {one.cell.row_name: one.runs for one in outcomes if one.runs}
            for metric in self.metrics if groups else ():
                name = file_name(column, *([metric] if len(self.metrics) > 1 else []))
                figures.append(draw_curves(groups, folder / f"curves-{name}.png", metric, column))
        return Shown(side_by_side(results.outcomes), figures)
