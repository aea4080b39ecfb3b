"""The interface of ways to show a recipe's results, as tables and figures."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from mnemos.common.registry import Part, Registry
from mnemos.studies.reproduce.cell import CellOutcome
from mnemos.studies.reproduce.table import Sheet


@dataclass(frozen=True)
class RecipeResults:
    """All cells of a recipe with the runs that have ended."""

    outcomes: Sequence[CellOutcome]
    seeds: Sequence[int]
    scale: float = 1.0
    """The factor by which the paper's number of rounds was multiplied."""

    @property
    def columns(self) -> dict[str, list[CellOutcome]]:
        """Outcomes by column, in the recipe's order."""
        grouped: dict[str, list[CellOutcome]] = {}
        for outcome in self.outcomes:
            grouped.setdefault(outcome.cell.column, []).append(outcome)
        return grouped


@dataclass(frozen=True)
class Shown:
    """What a show has made: a sheet of numbers, and the files of figures."""

    sheet: Sheet
    figures: list[Path] = field(default_factory=list)


class Show(Part):
    """A way to show a recipe's results."""

    trains: ClassVar[bool] = True
    """Whether the cells have to be run; a partition can be shown without."""

    @abstractmethod
    def show(self, results: RecipeResults, folder: Path) -> Shown:
        """Make a sheet of numbers, and draw figures in `folder`."""


shows: Registry[Show] = Registry("way to show", Show, "mnemos.studies.reproduce.shows", "shows")


def file_name(*names: str) -> str:
    """Names joined and made fit for a file's name: `α = 0.5` becomes `α-0.5`."""
    return re.sub(r"[^\w.]+", "-", " ".join(names)).strip("-.")
