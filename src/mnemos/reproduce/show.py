"""How a recipe's results are shown: the interface of tables and figures."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from mnemos.registry import Part, Registry
from mnemos.reproduce.cell import Outcome
from mnemos.reproduce.table import Sheet


@dataclass(frozen=True)
class Results:
    """All cells of a recipe with what has been run of them."""

    outcomes: Sequence[Outcome]
    seeds: Sequence[int]
    scale: float = 1.0

    @property
    def columns(self) -> dict[str, list[Outcome]]:
        """Outcomes by column, in the recipe's order."""
        grouped: dict[str, list[Outcome]] = {}
        for outcome in self.outcomes:
            grouped.setdefault(outcome.cell.column, []).append(outcome)
        return grouped


@dataclass(frozen=True)
class Shown:
    """What came of it."""

    sheet: Sheet
    figures: list[Path] = field(default_factory=list)


class Show(Part):
    """One way to show results."""

    trains: ClassVar[bool] = True
    """Whether its cells have to be run."""

    @abstractmethod
    def show(self, results: Results, folder: Path) -> Shown:
        """A sheet of numbers, and figures in a folder."""


shows: Registry[Show] = Registry("way to show", Show, "mnemos.reproduce.shows")


def file_name(*names: str) -> str:
    """Names as a part of a file's name: `α = 0.5` becomes `α-0.5`."""
    return re.sub(r"[^\w.]+", "-", " ".join(names)).strip("-.")
