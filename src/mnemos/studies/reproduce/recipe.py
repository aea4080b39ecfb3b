"""A recipe: the experiments of one table or figure of a paper, and the numbers that the paper reports.

    title: LeNet at many learning rates
    item: table 5
    paper: paper.yaml              # citation, and readings that several recipes share
    base: base.yaml                # an experiment; as everywhere, a file or a mapping
    changes: {model: lenet}        # to the base, in all cells
    small: {rounds: 200}           # more changes, unless --scale asks for a scale of the paper's setting
    rows: {FedAvg: {}, FedAvg + WSM: {method.loss: wsm}}   # a list of such mappings: all combinations
    columns: {CIFAR-10: {}, CIFAR-100: {data: cifar100}}
    cells: {FedAvg/CIFAR-100: {local.lr: 0.005}}           # changes of single cells; null leaves a cell out
    numbers: {FedAvg: {CIFAR-10: [0.608, 0.010]}}          # a number, [mean, std], NC, or null
    seeds: [0, 1, 2]
    show: table                    # or curves, heatmaps, forgetting, partition, ablation, rates
    reading: [augment, "A sentence on what the paper leaves open."]
    says: ["What the paper says about it, where it gives no numbers."]

A recipe that `extends` another has the other's fields, except for those that it gives itself.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from mnemos.common.registry import Options
from mnemos.errors import ConfigError, did_you_mean
from mnemos.experiment.experiment import load_experiment
from mnemos.experiment.overrides import read_yaml
from mnemos.studies.reproduce.cell import ACCURACY, RecipeCell, Reported
from mnemos.studies.reproduce.scale import shrink
from mnemos.studies.reproduce.show import Show, shows

Changes = dict[str, Any]
Axis = dict[str, Changes]
"""Names of rows or columns, each with its dotted changes."""


class Paper(Options):
    """What the recipes of a paper have in common."""

    citation: str
    readings: dict[str, str] = Field(default_factory=dict)
    """Sentences on how the paper is read; recipes refer to them by name."""


class Recipe(Options):
    """One table or figure of a paper."""

    title: str
    item: str
    paper: Paper
    base: dict[str, Any]
    changes: Changes = Field(default_factory=dict)
    small: Changes = Field(default_factory=dict)
    """Changes that make the paper's setting small enough to run in hours; not used with `--scale`."""
    rows: tuple[Axis, ...] = Field(min_length=1)
    columns: Axis = Field(min_length=1)
    cells: dict[str, Changes | None] = Field(default_factory=dict)
    values: dict[str, str] = Field(default_factory=dict)
    """By column, what is shown instead of the accuracy: a metric, or the difference of two, `a - b`."""
    numbers: dict[str, dict[str, Annotated[Reported, BeforeValidator(Reported.parse)]]] = Field(
        default_factory=dict
    )
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1)
    show: Annotated[Show, shows] = Field("table", validate_default=True)
    reading: tuple[str, ...] = ()
    says: tuple[str, ...] = ()

    @field_validator("rows", mode="before")
    @classmethod
    def _axes(cls, value: Any) -> Any:
        return [value] if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _names_match(self) -> Self:
        rows = [", ".join(row) for row in product(*self.rows)]
        columns = [*self.columns]
        named = [("numbers", [*self.numbers], rows), ("values", [*self.values], columns)]
        named += [(f"numbers of '{row}'", [*cells], columns) for row, cells in self.numbers.items()]
        for where, given, known in named:
            for name in given:
                if name not in known:
                    raise ValueError(f"{where} has '{name}', which is none of: {'; '.join(known)}")
        names = [f"{row}/{column}" for row in rows for column in columns]
        for pattern in self.cells:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ValueError(f"cells has '{pattern}', which no row/column matches")
        for name in self.reading:
            if " " not in name and name not in self.paper.readings:
                hint = did_you_mean(name, self.paper.readings)
                raise ValueError(f"reading has '{name}', which the paper's readings don't have; {hint}")
        return self

    @classmethod
    def read(cls, path: Path) -> Recipe:
        """Read a recipe and the files that it refers to, and check the experiments of all cells."""
        try:
            recipe = cls.parse(_fields(path))
            for scale in (1.0, None):
                recipe.of(scale)
        except ConfigError as error:
            raise error if str(error).startswith(str(path)) else ConfigError(f"{path}: {error}") from None
        return recipe

    @property
    def notes(self) -> dict[str, list[str]]:
        """The sentences to print with the numbers, by heading."""
        readings = [self.paper.readings.get(name, name) for name in self.reading]
        notes = {"The paper says": list(self.says), "How the paper is read": readings}
        return {heading: sentences for heading, sentences in notes.items() if sentences}

    def of(self, scale: float | None) -> list[RecipeCell]:
        """All cells, row by row, at a scale of the paper's setting; None for the recipe's small setting."""
        found = (self._cell(row, column, scale) for row in product(*self.rows) for column in self.columns)
        return [cell for cell in found if cell is not None]

    def _cell(self, row: tuple[str, ...], column: str, scale: float | None) -> RecipeCell | None:
        """The cell of a row and a column; None if the recipe leaves it out."""
        name = ", ".join(row)
        small = self.small if scale is None else {}
        changes = {**self.changes, **small, **self.columns[column]}
        for axis, choice in zip(self.rows, row, strict=True):
            changes |= axis[choice]
        for pattern, own in self.cells.items():
            if fnmatchcase(f"{name}/{column}", pattern):
                if own is None:
                    return None
                changes |= own
        try:
            experiment = shrink(load_experiment(self.base, changes), 1.0 if scale is None else scale)
        except ConfigError as error:
            raise error.under(f"cell '{name}/{column}'") from None
        reported = self.numbers.get(name, {}).get(column, Reported())
        return RecipeCell(row, column, experiment, reported, self.values.get(column, ACCURACY))


_FILES = ("paper", "base")
"""Fields for which a recipe may name a file beside it."""


def _fields(path: Path, below: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A recipe's fields, with those of the recipe that it extends and of the files that it names.

    `below` are the recipes that extend this one, to find circles.
    """
    if path in below:
        raise ConfigError("it extends itself", "extends")
    given = read_yaml(path)
    for name in _FILES:
        if isinstance(given.get(name), str):
            given[name] = read_yaml(path.parent / given[name])
    parent = given.pop("extends", None)
    if parent is None:
        return given
    if not isinstance(parent, str):
        raise ConfigError(f"found {parent!r}; expected the name of a recipe's file", "extends")
    return {**_fields(path.parent / parent, (*below, path)), **given}
