"""A figure of accuracy over one setting at a time."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from pydantic import Field

from mnemos.common.registry import Options
from mnemos.experiment.experiment import Experiment
from mnemos.plots.style import COLOURS, plain, save
from mnemos.studies.reproduce.cell import CellOutcome
from mnemos.studies.reproduce.show import RecipeResults, Show, Shown, shows
from mnemos.studies.reproduce.table import side_by_side


class AblationPanel(Options):
    """A panel of the figure, over one setting."""

    field: str
    """The setting on the x axis, by its dotted name."""
    columns: str
    """A pattern for the recipe's columns in which the setting is varied."""
    log: bool = False


@shows.register("ablation")
class AblationShow(Show):
    """A figure with a panel for each setting and a line for each row: means ± one standard deviation."""

    panels: dict[str, AblationPanel] = Field(min_length=1)
    """The panels, by the label of the x axis."""

    def show(self, results: RecipeResults, folder: Path) -> Shown:
        """Draw the cells that have been run."""
        sheet = side_by_side(results.outcomes)
        if not any(outcome.values for outcome in results.outcomes):
            return Shown(sheet)
        figure = Figure(figsize=(1 + 3.6 * len(self.panels), 3.8), layout="constrained")
        every = figure.subplots(1, len(self.panels), squeeze=False, sharey=True)[0]
        rows = dict.fromkeys(outcome.cell.row_name for outcome in results.outcomes)
        for axes, (label, panel) in zip(every, self.panels.items(), strict=True):
            for row, colour, style in zip(rows, COLOURS, ["o-", "s--", "^-.", "d:"] * 2, strict=False):
                known = [
                    outcome for outcome in results.outcomes if outcome.cell.row_name == row and outcome.values
                ]
                chosen = [outcome for outcome in known if fnmatchcase(outcome.cell.column, panel.columns)]
                points = sorted(_point(outcome, panel) for outcome in chosen)
                if points:
                    x, mean, std = zip(*points, strict=True)
                    axes.errorbar(x, mean, std, fmt=style, color=colour, capsize=3, label=plain(row))
            if panel.log:
                axes.set_xscale("log")
            axes.set_xlabel(plain(label))
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
        every[0].set_ylabel("test accuracy")
        handles, labels = every[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
        return Shown(sheet, [save(figure, folder / "ablation.png")])


def _point(outcome: CellOutcome, panel: AblationPanel) -> tuple[float, float, float]:
    assert outcome.mean is not None
    return _setting(outcome.cell.experiment, panel.field), outcome.mean, outcome.std or 0.0


def _setting(experiment: Experiment, field: str) -> float:
    node: Any = experiment
    for step in field.split("."):
        node = getattr(node, step)
    return float(node)
