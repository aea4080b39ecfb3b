"""A recipe carried out at a scale: what there is to run, what has been run, and the page that shows it."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mnemos.errors import ConfigError
from mnemos.files import write_atomically
from mnemos.reproduce.cell import Cell, choose, collect
from mnemos.reproduce.recipe import Recipe
from mnemos.reproduce.scale import differences
from mnemos.reproduce.show import Results, Shown
from mnemos.runs.study import Case, record
from mnemos.version import __version__


@dataclass(frozen=True)
class Reproduction:
    """A recipe, a scale, seeds, and a folder of runs that all recipes share."""

    name: str
    recipe: Recipe
    folder: Path
    scale: float = 1.0
    seeds: tuple[int, ...] = ()
    """Instead of the recipe's."""
    only: tuple[str, ...] = ()
    """The cells to run: rows, columns, or row/column; if there are none, all."""

    @cached_property
    def cells(self) -> list[Cell]:
        """All of them, at the scale."""
        return self.recipe.of(self.scale)

    @property
    def settings(self) -> list[str]:
        """What the scale has changed."""
        full = self.recipe.of(1.0)
        return differences((a.experiment, b.experiment) for a, b in zip(full, self.cells, strict=True))

    @property
    def at_scale(self) -> str:
        """What the scale means for the numbers beside the paper's."""
        changed = "; ".join(self.settings)
        return f"At scale {self.scale:g} ({changed}): differences are of the scale as well as of the method"

    @property
    def command(self) -> str:
        """What to type to get it."""
        scale = "" if self.scale == 1 else f" --scale {self.scale:g}"
        seeds = f" --seeds {','.join(map(str, self.seeds))}" if self.seeds else ""
        only = "".join(f" --only {shlex.quote(words)}" for words in self.only)
        return f"mnemos reproduce {self.name}{scale}{only}{seeds}"

    @property
    def home(self) -> Path:
        """Where its page, table and figures go."""
        return self.folder / self._stem

    def __post_init__(self) -> None:
        if min(self.seeds, default=0) < 0:
            raise ConfigError(f"found {min(self.seeds)}; allowed: ≥ 0", "seeds")
        if len(set(self.seeds)) < len(self.seeds):
            given = ", ".join(map(str, self.seeds))
            raise ConfigError(f"found {given}; each seed can be used once", "seeds")

    def cases(self) -> list[Case]:
        """The runs of the chosen cells, column by column: data sets needn't be read in turn."""
        chosen = choose(self.cells, self.only)
        if not self.recipe.show.trains:
            return []
        columns = list(self.recipe.columns)
        ordered = sorted(chosen, key=lambda cell: columns.index(cell.column))
        return [case for cell in ordered for case in cell.cases(self._seeds)]

    def show(self, figures: Path | None = None) -> Shown:
        """Read what has been run so far, draw, and write the page and the table beside the runs."""
        outcomes = [collect(cell, self._seeds, self.folder) for cell in self.cells]
        results = Results(outcomes, self._seeds, self.scale)
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            shown = self.recipe.show.show(results, figures or self.home)
            write_atomically(self.home / "README.md", self._page(shown).encode())
            write_atomically(self.home / "table.csv", shown.sheet.csv().encode())
        except OSError as error:
            raise ConfigError(f"{self.home}: it can't be written ({error.strerror})") from None
        runs = {f"{one.cell.row_name}, {one.cell.column}": one.runs for one in outcomes if one.runs}
        if runs:
            record(self._stem.replace("/", "-"), self.folder, runs)
        return shown

    @property
    def _seeds(self) -> tuple[int, ...]:
        return self.seeds or self.recipe.seeds

    @property
    def _stem(self) -> str:
        return self.name if self.scale == 1 else f"{self.name}-scale-{self.scale:g}"

    def _page(self, shown: Shown) -> str:
        recipe = self.recipe
        made = f"`{self.command}`, Mnemos {__version__}, {time.strftime('%Y-%m-%d')}"
        parts = [f"# {recipe.title}", f"{recipe.paper.citation}, {recipe.item}.", made]
        if self.scale != 1:
            parts.append(f"{self.at_scale}.")
        parts.append(shown.sheet.markdown().rstrip())
        parts += [f"![{path.stem}]({path.name})" for path in shown.figures if path.parent == self.home]
        for heading, sentences in recipe.notes.items():
            parts += [f"## {heading}", "\n".join(f"- {sentence}" for sentence in sentences)]
        return "\n\n".join(parts) + "\n"
