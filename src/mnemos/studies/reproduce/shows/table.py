"""The side-by-side table, without figures."""

from __future__ import annotations

from pathlib import Path

from mnemos.studies.reproduce.show import RecipeResults, Show, Shown, shows
from mnemos.studies.reproduce.table import side_by_side


@shows.register("table")
class TableShow(Show):
    """The paper's numbers and ours, with a row for each cell."""

    def show(self, results: RecipeResults, folder: Path) -> Shown:
        """Make the sheet; no figure is drawn."""
        return Shown(side_by_side(results.outcomes))
