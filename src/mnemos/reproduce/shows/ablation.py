"""Accuracy over one setting at a time."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from pydantic import Field

from mnemos.experiment import Experiment
from mnemos.registry import Options
from mnemos.report.style import COLOURS, plain, save
from mnemos.reproduce.cell import Outcome
from mnemos.reproduce.show import Results, Show, Shown, shows
from mnemos.reproduce.table import side_by_side


class Panel(Options):
    """One setting."""

    field: str
    """What is on the x axis, by its dotted name."""
    columns: str
    """A pattern of the columns that belong to it."""
    log: bool = False


@shows.register("ablation")
class Ablation(Show):
    """A figure with a panel a setting and a line a row: means, with error bars of one standard deviation."""

    panels: dict[str, Panel] = Field(min_length=1)
    """By the label of the x axis."""

    def show(self, results: Results, folder: Path) -> Shown:
        """What hasn't been run is left out of the figure."""
        sheet = side_by_side(results.outcomes)
        if not any(one.values for one in results.outcomes):
            return Shown(sheet)
        figure = Figure(figsize=(1 + 3.6 * len(self.panels), 3.8), layout="constrained")
        every = figure.subplots(1, len(self.panels), squeeze=False, sharey=True)[0]
        rows = dict.fromkeys(one.cell.row_name for one in results.outcomes)
        for axes, (label, panel) in zip(every, self.panels.items(), strict=True):
            for row, colour, style in zip(rows, COLOURS, ["o-", "s--", "^-.", "d:"] * 2, strict=False):
                known = [one for one in results.outcomes if one.cell.row_name == row and one.values]
                chosen = [one for one in known if fnmatchcase(one.cell.column, panel.columns)]
                points = sorted(_point(one, panel) for one in chosen)
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


def _point(one: Outcome, panel: Panel) -> tuple[float, float, float]:
    assert one.mean is not None
    return _setting(one.cell.experiment, panel.field), one.mean, one.std or 0.0


def _setting(experiment: Experiment, field: str) -> float:
    node: Any = experiment
    for step in field.split("."):
        node = getattr(node, step)
    return float(node)
