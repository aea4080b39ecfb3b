"""A study: variants of a base experiment, each with several seeds.

The variants are given by name (`variants`), as all combinations of some values (`grid`), one by one
(`list`), or drawn at random (`random`). All four are dotted changes to the base.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from mnemos.common import rng
from mnemos.common.files import write_atomically
from mnemos.common.plain import parse_json
from mnemos.common.registry import Options
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import FORMS, Experiment, load_experiment
from mnemos.experiment.overrides import flatten, merge, read_yaml
from mnemos.runs.run import Run

Changes = dict[str, Any]
"""New values of fields, by their dotted names."""

_DIGITS = 4
"""Significant digits of a number that is drawn at random: enough for a search, few enough for a table."""


@dataclass(frozen=True)
class Case:
    """One run of a study: a variant with one seed."""

    variant: str
    """The variant's name in tables."""
    experiment: Experiment
    """The experiment with its seed."""

    def __str__(self) -> str:
        return f"{self.variant}, seed {self.experiment.seed}"


Cases = list[Case]


class Range(Options):
    """A range of numbers to draw from, with both bounds included."""

    low: float
    high: float
    log: bool = Field(False, description="all orders of magnitude are equally likely")
    whole: bool = Field(False, description="whole numbers alone")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"found low {self.low:g} and high {self.high:g}; expected low < high")
        if self.log and self.low <= 0:
            raise ValueError(f"found low {self.low:g}; with log it must be > 0")
        if self.whole and not (self.low.is_integer() and self.high.is_integer()):
            raise ValueError(f"found {self.low:g} to {self.high:g}; with whole both must be whole numbers")
        return self

    def draw(self, share: float) -> float | int:
        """The number at `share`, from 0 to 1, of the way from low to high."""
        if self.log:
            value = self.low * (self.high / self.low) ** share
        elif self.whole:
            value = self.low - 0.5 + share * (self.high - self.low + 1)
        else:
            value = self.low + share * (self.high - self.low)
        value = round(value) if self.whole else float(f"{value:.{_DIGITS}g}")
        value = min(max(value, self.low), self.high)
        return int(value) if self.whole else value


class RandomSearch(Options):
    """Values drawn at random: for each field from a list of choices or from a range."""

    trials: int = Field(ge=1)
    seed: int = Field(0, ge=0, lt=2**63, description="of the draws; runs have seeds of their own")
    fields: dict[str, Any] = Field(min_length=1)

    @field_validator("fields")
    @classmethod
    def _choices_or_ranges(cls, value: dict[str, Any]) -> dict[str, Any]:
        return {field: _choices_or_range(field, given) for field, given in value.items()}

    def draw(self, trial: int) -> Changes:
        """The values of a trial. Each depends on the seed, the trial's number and the field's name alone."""
        return {field: self._value(field, trial) for field in self.fields}

    def _value(self, field: str, trial: int) -> Any:
        share = rng.numpy_generator(self.seed, f"sweep {field}", trial).random()
        given = self.fields[field]
        return given.draw(share) if isinstance(given, Range) else given[int(share * len(given))]


class Study(Options):
    """A base experiment, its variants in one of four forms, and the seeds each is run with."""

    base: Changes = Field(default_factory=dict)
    variants: dict[str, Changes] | None = Field(None, min_length=1, description="by name")
    grid: dict[str, Sequence[Any]] | None = Field(
        None, min_length=1, description="all combinations of some fields' values"
    )
    list: tuple[Changes, ...] | None = Field(None, min_length=1, description="one by one")
    random: RandomSearch | None = Field(None, description="drawn at random")
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**63)], ...] = Field((0, 1, 2), min_length=1)

    @field_validator("seeds")
    @classmethod
    def _each_once(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(value)) < len(value):
            raise ValueError(f"found {', '.join(map(str, value))}; each seed can be used once")
        return value

    @field_validator("grid", mode="before")
    @classmethod
    def _lists_of_values(cls, value: Any) -> Any:
        for field, values in value.items() if isinstance(value, dict) else ():
            if not isinstance(values, list | tuple) or not values:
                raise _part_error(field, f"found {values!r}; expected a list of values")
        return value

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        given = [form for form in FORMS if getattr(self, form) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            raise ValueError(f"found {found}; expected exactly one of {', '.join(FORMS)}")
        return self

    @classmethod
    def read(
        cls,
        source: str | Path | Mapping[str, Any],
        changes: Mapping[str, Any] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> Study:
        """Read a study from a YAML file or a mapping, and check its experiments.

        `changes`, by dotted name, apply to the base; `seeds` replace the study's.
        """
        given = dict(source) if isinstance(source, Mapping) else read_yaml(Path(source))
        try:
            study = cls.parse({**given, "seeds": seeds} if seeds is not None else given)
            study = study.model_copy(update={"base": merge(study.base, changes or {}, Experiment)})
            study.cases()
        except ConfigError as error:
            raise error if isinstance(source, Mapping) else ConfigError(f"{source}: {error}") from None
        return study

    def cases(self) -> Cases:
        """The cases of the study, variant by variant."""
        return [
            Case(name, experiment.model_copy(update={"seed": seed}))
            for name, experiment in self._experiments.items()
            for seed in self.seeds
        ]

    @cached_property
    def _experiments(self) -> dict[str, Experiment]:
        """The experiment of each variant.

        Two variants that are the same experiment are an error, unless they were drawn at random: then the
        second is left out.
        """
        found: dict[str, Experiment] = {}
        names: dict[str, str] = {}
        for name, changes in self._named.items():
            try:
                experiment = load_experiment(self.base, changes)
            except ConfigError as error:
                raise ConfigError(str(error), f"variant '{name}'") from None
            # The study sets the seed, so experiments that differ in it alone are the same variant.
            same = names.setdefault(experiment.model_copy(update={"seed": 0}).hash(), name)
            if same == name:
                found[name] = experiment
            elif self.random is None:
                raise ConfigError(f"the variants '{same}' and '{name}' are the same experiment")
        return found

    @cached_property
    def _named(self) -> dict[str, Changes]:
        if self.variants is not None:
            return self.variants
        if self.grid is not None:
            product = itertools.product(*self.grid.values())
            return named([dict(zip(self.grid, values, strict=True)) for values in product])
        if self.random is not None:
            return named([self.random.draw(trial) for trial in range(self.random.trials)])
        return named(self.list or ())


def record(name: str, folder: Path, runs: Mapping[str, Sequence[Run]]) -> Path:
    """Write a file that tells reports which runs in the folder belong to which variant; returns its path."""
    path = folder / f"{name}.study.json"
    variants = {variant: [run.path.name for run in found] for variant, found in runs.items()}
    try:
        write_atomically(path, json.dumps({"name": name, "variants": variants}, indent=1).encode())
    except OSError as error:
        raise ConfigError(f"{path}: it can't be written ({error.strerror})") from None
    return path


def recorded(path: Path) -> Mapping[str, Sequence[str]]:
    """The names of each variant's run directories, from the record of a study; empty for any other file."""
    try:
        variants = parse_json(path.read_text())["variants"]
        return {str(name): [str(run) for run in runs] for name, runs in variants.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def variants_of(run: Run) -> Sequence[str]:
    """The names of a run's variants in the studies that are recorded beside it, each name once."""
    studies = (recorded(path) for path in sorted(run.path.parent.glob("*.study.json")))
    names = (name for study in studies for name, runs in study.items() if run.path.name in runs)
    return tuple(dict.fromkeys(names))


def _choices_or_range(field: str, given: Any) -> Any:
    if isinstance(given, list | tuple) and given:
        return given
    if not isinstance(given, dict):
        raise _part_error(field, f"found {given!r}; expected a list of choices, or low and high")
    try:
        return Range.parse(given)
    except ConfigError as error:
        path = f"{field}.{error.path}" if error.path else field
        raise _part_error(path, error.message) from None


def _part_error(path: str, sentence: str) -> PydanticCustomError:
    """An error of pydantic that carries the whole dotted path of the field for `explain`."""
    return PydanticCustomError("part", "{sentence}", {"sentence": sentence, "path": path})


def named(variants: Sequence[Changes]) -> dict[str, Changes]:
    """Name variants by what they change, without the changes that all of them have in common."""
    shown = _without_common(variants)
    words = _short_fields({field for changes in shown for field in changes})
    found: dict[str, Changes] = {}
    for changes, own in zip(variants, shown, strict=True):
        name = ", ".join(f"{words[field]}={_short(value)}" for field, value in own.items()) or "base"
        count = sum(known.partition(" #")[0] == name for known in found)
        found[f"{name} #{count + 1}" if count else name] = changes
    return found


def _without_common(variants: Sequence[Changes]) -> list[Changes]:
    """The changes of each variant without those that all have in common; all, if nothing would remain."""
    first, *others = variants
    common = {
        field
        for field, value in first.items()
        if others and all(field in other and other[field] == value for other in others)
    }
    return [
        {field: value for field, value in changes.items() if field not in common} or changes
        for changes in variants
    ]


def _short_fields(fields: Iterable[str]) -> dict[str, str]:
    """A short name for each dotted name: as few of its last words as tell it from the others."""
    words = {field: field.removesuffix(".name").split(".") for field in fields}
    found: dict[str, str] = {}
    for field, path in words.items():
        for count in range(1, len(path) + 1):
            tails = Counter(tuple(other[-count:]) for other in words.values())
            found[field] = ".".join(path[-count:])
            if tails[tuple(path[-count:])] == 1:
                break
    return found


def _short(value: Any) -> str:
    """A value in a variant's name; `scaffold(server.lr=0.5)` for a whole part."""
    if isinstance(value, dict):
        options = [
            f"{name.removesuffix('.name')}={_short(option)}"
            for name, option in flatten(value)
            if name != "name"
        ]
        return str(value.get("name", "")) + (f"({', '.join(options)})" if options else "")
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_short, value))}]"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.6g}"
    return str(value)
