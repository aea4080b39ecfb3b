"""A recipe that is run at a scale: its cases, their results, and the page that shows them."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from mnemos.common.files import write_atomically
from mnemos.errors import ConfigError
from mnemos.studies.reproduce.cell import RecipeCell, choose, collect
from mnemos.studies.reproduce.recipe import Recipe
from mnemos.studies.reproduce.scale import differences
from mnemos.studies.reproduce.show import RecipeResults, Shown
from mnemos.studies.study import Case, record
from mnemos.version import __version__


@dataclass(frozen=True)
class Reproduction:
    """A recipe, a scale, seeds, and a folder of runs that all recipes share."""

    name: str
    recipe: Recipe
    folder: Path
    scale: float | None = 1.0
    """The scale of the paper's setting; None for the recipe's small setting."""
    seeds: tuple[int, ...] = ()
    """Seeds to use instead of the recipe's; none for the recipe's."""
    only: tuple[str, ...] = ()
    """The cells to run: rows, columns, or row/column; none for all."""

    device: str | Sequence[str] = ()
    """The devices to train on; none for those that the recipe's engine finds."""

    @cached_property
    def cells(self) -> list[RecipeCell]:
        """All cells of the recipe, at the scale and on the devices."""
        return [self._on_device(cell) for cell in self.recipe.of(self.scale)]

    def _on_device(self, cell: RecipeCell) -> RecipeCell:
        """A cell whose engine uses the devices; `auto`, if the recipe's engine can't use any but the CPU."""
        engine = cell.experiment.engine
        if not self.device or (self.device == "cpu" and not engine.takes_device()):
            return cell
        other = {} if engine.takes_device() else {"name": "auto", "exact": engine.exact}
        device = list(self.device) if not isinstance(self.device, str) else self.device
        try:
            experiment = cell.experiment.override({"engine": {**other, "device": device}})
        except ConfigError as error:
            raise error.under(f"cell '{cell.name}'") from None
        return replace(cell, experiment=experiment)

    @property
    def settings(self) -> list[str]:
        """The settings that the scale has changed, such as `rounds: 4000 → 400`."""
        full = [self._on_device(cell) for cell in self._full]
        return differences((a.experiment, b.experiment) for a, b in zip(full, self.cells, strict=True))

    @property
    def is_full(self) -> bool:
        """Whether the scale is the paper's own setting."""
        return self.scale == 1 or (self.scale is None and not self.recipe.small)

    @property
    def at_scale(self) -> str:
        """A sentence that says what the scale has changed, to be printed beside the paper's numbers."""
        changed = "; ".join(self.settings)
        size = "In the small setting" if self.scale is None else f"At scale {self.scale:g}"
        return f"{size} ({changed}): differences are of the scale as well as of the method"

    @property
    def command(self) -> str:
        """The command line that makes this reproduction."""
        scale = "" if self._is_default else f" --scale {self.scale:g}"
        seeds = f" --seeds {','.join(map(str, self.seeds))}" if self.seeds else ""
        only = "".join(f" --only {shlex.quote(words)}" for words in self.only)
        names = self.device if isinstance(self.device, str) else ",".join(self.device)
        device = f" --device {names}" if names else ""
        return f"mnemos reproduce {self.name}{scale}{only}{seeds}{device}"

    @property
    def home(self) -> Path:
        """The folder of its page, table and figures."""
        return self.folder / self._stem

    def __post_init__(self) -> None:
        if min(self.seeds, default=0) < 0:
            raise ConfigError(f"found {min(self.seeds)}; allowed: ≥ 0", "seeds")
        if len(set(self.seeds)) < len(self.seeds):
            given = ", ".join(map(str, self.seeds))
            raise ConfigError(f"found {given}; each seed can be used once", "seeds")

    def cases(self) -> list[Case]:
        """The cases of the chosen cells, column by column, so that each data set is read once."""
        chosen = choose(self.cells, self.only)
        if not self.recipe.show.trains:
            return []
        columns = list(self.recipe.columns)
        ordered = sorted(chosen, key=lambda cell: columns.index(cell.column))
        return [case for cell in ordered for case in cell.cases(self._seeds)]

    def show(self, figures: Path | None = None) -> Shown:
        """Read the runs so far, draw the figures, and write the page and the table beside the runs.

        `figures` is the folder for figures; None for that of the page.
        """
        outcomes = [collect(cell, self._seeds, self.folder) for cell in self.cells]
        results = RecipeResults(outcomes, self._seeds, self._share_of_rounds)
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            shown = self.recipe.show.show(results, figures or self.home)
            write_atomically(self.home / "README.md", self._page(shown).encode())
            write_atomically(self.home / "table.csv", shown.sheet.csv().encode())
        except OSError as error:
            raise ConfigError(f"{self.home}: it can't be written ({error.strerror})") from None
        runs = {
            f"{outcome.cell.row_name}, {outcome.cell.column}": outcome.runs
            for outcome in outcomes
            if outcome.runs
        }
        if runs:
            record(self._stem.replace("/", "-"), self.folder, runs)
        return shown

    @cached_property
    def _full(self) -> list[RecipeCell]:
        """All cells in the paper's own setting."""
        return self.recipe.of(1.0)

    @property
    def _seeds(self) -> tuple[int, ...]:
        return self.seeds or self.recipe.seeds

    @property
    def _stem(self) -> str:
        return self.name if self._is_default else f"{self.name}-scale-{self.scale:g}"

    @property
    def _is_default(self) -> bool:
        """Whether the command needs no `--scale` to make this reproduction."""
        return self.scale is None if self.recipe.small else self.is_full

    @property
    def _share_of_rounds(self) -> float:
        """The factor by which the paper's number of rounds is multiplied."""
        if self.scale is not None:
            return self.scale
        return self.cells[0].experiment.rounds / self._full[0].experiment.rounds

    def _page(self, shown: Shown) -> str:
        recipe = self.recipe
        made = f"`{self.command}`, Mnemos {__version__}, {time.strftime('%Y-%m-%d')}"
        parts = [f"# {recipe.title}", f"{recipe.paper.citation}, {recipe.item}.", made]
        if not self.is_full:
            parts.append(f"{self.at_scale}.")
        parts.append(shown.sheet.markdown().rstrip())
        parts += [f"![{path.stem}]({path.name})" for path in shown.figures if path.parent == self.home]
        for heading, sentences in recipe.notes.items():
            parts += [f"## {heading}", "\n".join(f"- {sentence}" for sentence in sentences)]
        return "\n\n".join(parts) + "\n"
