"""The side-by-side table alone."""

from __future__ import annotations

from pathlib import Path

from mnemos.reproduce.show import Results, Show, Shown, shows
from mnemos.reproduce.table import side_by_side


@shows.register("table")
class Table(Show):
    """The paper's numbers and ours, a line a cell."""

    def show(self, results: Results, folder: Path) -> Shown:
        """Nothing is drawn."""
        return Shown(side_by_side(results.outcomes))
