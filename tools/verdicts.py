"""Claims as contrasts of recipes' cells, and their verdicts from the runs that have been collected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field, model_validator

from claim_runs import FOLDER, Line, cells_of
from effects import Estimate, Rule, Verdict, decades, estimate, together, verdict
from mnemos.common.registry import Options
from mnemos.errors import ConfigError


class Part(Options):
    """One effect of a claim, and the rule that decides it."""

    says: str
    recipe: str
    contrast: dict[str, float] = Field(default_factory=dict)
    """Cells of the recipe with their factors; the effect of a seed is the sum."""
    widths: tuple[str, str] | None = None
    """Instead: two patterns of cells that differ in their rate; the effect is their ranges' difference."""
    figure: str = "accuracy"
    rule: Rule = "above"
    margin: float = Field(gt=0)
    seeds: tuple[int, ...] = (0, 1, 2)
    paper: float | None = None
    """The paper's effect in the same unit, if it gives one."""
    paper_says: str = ""
    """Where that is from, or what it says instead."""

    @model_validator(mode="after")
    def _one_kind(self) -> Part:
        if bool(self.contrast) == bool(self.widths):
            raise ValueError("it takes either a contrast or widths")
        return self

    @property
    def unit(self) -> Literal["points", "decades"]:
        """Accuracies and forgetting are shown in points of a hundred."""
        return "decades" if self.widths else "points"

    def shown(self, value: float) -> float:
        """In its unit."""
        return value if self.widths else 100 * value


class Elsewhere(Options):
    """What was decided by other runs."""

    says: str
    verdict: Verdict
    effect: str
    page: str
    paper_says: str = ""


class Claim(Options):
    """A claim of a paper."""

    number: int
    title: str
    source: str
    setting: str
    hours: float = Field(ge=0, description="estimate of all its runs, of one core")
    parts: tuple[Part, ...] = ()
    elsewhere: tuple[Elsewhere, ...] = ()
    waits: str = ""
    """Why nothing of it runs yet."""


def read_claims(path: Path = FOLDER / "claims.yaml") -> list[Claim]:
    """All claims; cells that no recipe has are refused."""
    claims = [Claim.parse(entry) for entry in yaml.safe_load(path.read_text())]
    for claim in claims:
        for part in claim.parts:
            cells = [cell.name for cell in cells_of(part.recipe)]
            for pattern in (*part.contrast, *(part.widths or ())):
                if not any(cell == pattern or fnmatchcase(cell, pattern) for cell in cells):
                    raise ConfigError(f"claim {claim.number}: {part.recipe} has no cell '{pattern}'")
    return claims


@dataclass(frozen=True)
class Decided:
    """A part of a claim with the runs that speak of it."""

    part: Part
    lines: Sequence[Line]

    @cached_property
    def runs(self) -> list[Line]:
        """Those of its cells and seeds."""
        return [line for line in self.lines if line["seed"] in self.part.seeds and self._cells(line)]

    @cached_property
    def values(self) -> dict[int, float]:
        """The effect of each seed for which all cells have been run."""
        found = {seed: self._effect(seed) for seed in self.part.seeds}
        return {seed: value for seed, value in found.items() if value is not None}

    @property
    def estimate(self) -> Estimate | None:
        """Over all seeds so far; None of fewer than two."""
        return estimate([*self.values.values()]) if len(self.values) > 1 else None

    @property
    def verdict(self) -> Verdict:
        """Only once all seeds are there: nobody stops when the answer pleases."""
        if len(self.values) < len(self.part.seeds) or self.estimate is None:
            return Verdict.RUNNING
        return verdict(self.estimate, self.part.rule, self.part.margin)

    @cached_property
    def rated(self) -> list[str]:
        """The cells whose rates make up its ranges."""
        return [name for name in self.rates if any(fnmatchcase(name, one) for one in self.part.widths or ())]

    def _cells(self, line: Line) -> list[str]:
        prefix = f"{self.part.recipe}: "
        own = [cell.removeprefix(prefix) for cell in line["cells"] if cell.startswith(prefix)]
        patterns = [*self.part.contrast, *(self.part.widths or ())]
        return [cell for cell in own if any(cell == one or fnmatchcase(cell, one) for one in patterns)]

    def _effect(self, seed: int) -> float | None:
        cells = {cell: line for line in self.runs if line["seed"] == seed for cell in self._cells(line)}
        if self.part.widths is None:
            figures = {name: cells.get(name, {}).get("figures", {}) for name in self.part.contrast}
            if any(self.part.figure not in one for one in figures.values()):
                return None
            values = {name: float(one[self.part.figure]) for name, one in figures.items()}
            return sum(factor * values[name] for name, factor in self.part.contrast.items())
        ranges = []
        for pattern in self.part.widths:
            wanted = {name: rate for name, rate in self.rates.items() if fnmatchcase(name, pattern)}
            if not wanted.keys() <= cells.keys():
                return None
            # A rate at which training diverges is no good one.
            ranges.append(
                decades({rate: cells[name]["figures"].get("accuracy", 0.0) for name, rate in wanted.items()})
            )
        return ranges[0] - ranges[1]

    @cached_property
    def rates(self) -> dict[str, float]:
        """The learning rate of each cell of the recipe."""
        return {cell.name: cell.experiment.local.lr for cell in cells_of(self.part.recipe)}


def decide(claim: Claim, lines: Sequence[Line]) -> list[Decided]:
    """Each of its parts."""
    return [Decided(part, lines) for part in claim.parts]


def outcome(claim: Claim, parts: Sequence[Decided]) -> Verdict:
    """Of the whole claim."""
    if claim.waits or not (parts or claim.elsewhere):
        return Verdict.RUNNING
    return together([*(part.verdict for part in parts), *(one.verdict for one in claim.elsewhere)])
