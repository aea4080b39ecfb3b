"""Accuracy over rounds."""

from __future__ import annotations

from pathlib import Path

from mnemos.report.curves import draw_curves
from mnemos.reproduce.show import Results, Show, Shown, file_name, shows
from mnemos.reproduce.table import side_by_side


@shows.register("curves")
class Curves(Show):
    """A figure a column, with a line a row; and the accuracies at the end."""

    def show(self, results: Results, folder: Path) -> Shown:
        """A column of which nothing has been run has no figure."""
        figures = []
        for column, outcomes in results.columns.items():
            groups = {one.cell.row_name: one.runs for one in outcomes if one.runs}
            if groups:
                path = folder / f"curves-{file_name(column)}.png"
                figures.append(draw_curves(groups, path, title=column))
        return Shown(side_by_side(results.outcomes), figures)
