"""Carrying out a recipe, and listing recipes with the runs that they have left and the time these take."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mnemos.cli.options import split_devices
from mnemos.cli.output import interruptible, print_json
from mnemos.cli.plan import makespan, print_plan
from mnemos.cli.trusting import asking
from mnemos.cli.variants import failures, parse_seeds
from mnemos.display.study import overview
from mnemos.display.terminal import console
from mnemos.display.words import duration
from mnemos.studies.pool import carry_out, cores_each, jobs_for
from mnemos.studies.reproduce.catalogue import find_recipe
from mnemos.studies.reproduce.names import recipe_names
from mnemos.studies.reproduce.recipe import Recipe
from mnemos.studies.reproduce.reproduction import Reproduction
from mnemos.studies.reproduce.scale import check_scale
from mnemos.studies.reproduce.show import Shown
from mnemos.studies.reproduce.timing import Timing
from mnemos.studies.results import Ledger, Results
from mnemos.studies.study import Case


@dataclass(frozen=True)
class Asked:
    """What the options of the command ask for, of one recipe or of all."""

    scale: float | None
    out: Path
    jobs: int | None
    quiet: bool
    as_json: bool

    def __post_init__(self) -> None:
        if self.scale is not None:
            check_scale(self.scale)


def reproduce_recipe(
    name: str,
    asked: Asked,
    cells: tuple[str | None, tuple[str, ...], str | None],
    figures: Path | None,
    *,
    dry_run: bool,
    trust: bool,
) -> None:
    """Carry out a recipe, or say what would be run, and print its table.

    `cells` are the words for seeds, the cells to run, and the word for devices. Figures are drawn in the
    folder `figures`, or beside the table.
    """
    out, jobs, as_json = asked.out, asked.jobs, asked.as_json
    seeds, only, device = cells
    known, recipe = asking(lambda said: find_recipe(name, trust=said), trust)
    reproduction = Reproduction(
        known,
        recipe,
        out,
        _size(recipe, asked.scale),
        parse_seeds(seeds) or (),
        only,
        split_devices(device) or (),
    )
    cases = reproduction.cases()
    if dry_run:
        if not as_json:
            _heading(reproduction)
        with interruptible(as_json, "nothing was run"):
            print_plan(cases, out, jobs, as_json)
        return
    with interruptible(as_json):
        results = carry_out(cases, out, jobs=jobs, view=overview(asked.quiet or not cases))
    shown = reproduction.show(figures)
    if as_json:
        print_json(_facts(reproduction, shown, results))
    else:
        _print(reproduction, shown)
    for result in results.failed:
        typer.echo(f"failed: {result.case}: {result.message}", err=True)
    if results.failed:
        raise SystemExit(1)


def _size(recipe: Recipe, scale: float | None) -> float | None:
    """The scale to run a recipe at; None for its small setting, if it has one and no scale was asked for."""
    return 1.0 if scale is None and not recipe.small else scale


def list_recipes(asked: Asked, *, estimate: bool) -> None:
    """Print all recipes, with the number of runs that each has left and, if asked to, the time these take.

    A terminal shows the recipes at once and fills in the times, because each time can take a while to find.
    """
    with interruptible(asked.as_json, "nothing was run"):
        _list(asked, estimate)


def _list(asked: Asked, estimate: bool) -> None:
    scale, out, jobs, quiet, as_json = asked.scale, asked.out, asked.jobs, asked.quiet, asked.as_json
    timing = Timing(out) if estimate else None
    rows: list[dict[str, Any]] = []
    todo: list[list[Case]] = []
    for name in recipe_names():
        known, recipe = find_recipe(name)
        cases = Reproduction(known, recipe, out, _size(recipe, scale)).cases()
        todo.append(Ledger(cases, out, None).left)
        runs = len({case.experiment.hash() for case in cases})
        rows.append({"recipe": name, "title": recipe.title, "runs": runs, "left": len(todo[-1])})
    alive = console.is_terminal and not as_json and estimate
    with Live(console=console, get_renderable=lambda: _recipes(rows, timed=True)) if alive else nullcontext():
        for row, left in zip(rows, todo, strict=True):
            if timing is None:
                break
            if not quiet and not alive:
                typer.echo(f"timing {row['recipe']}", err=True)
            at_once = jobs_for(left, jobs)
            times = [timing.seconds(case.experiment, cores_each(at_once)) for case in left]
            row["seconds"] = makespan(times, at_once)
    if as_json:
        print_json({"status": "finished", "scale": scale, "recipes": rows})
    elif not alive:
        console.print(_recipes(rows, timed=estimate))


def _recipes(rows: list[dict[str, Any]], *, timed: bool) -> Table:
    table = Table("recipe", "title", "runs", "left", *(["time here"] if timed else []), box=None)
    for row in rows:
        seconds = row.get("seconds", math.inf)
        time = "–" if seconds is None else "…" if math.isinf(seconds) else duration(seconds)
        cells = [row["recipe"], Text(row["title"]), str(row["runs"]), str(row["left"])]
        table.add_row(*cells, *([time] if timed else []))
    return table


def _facts(reproduction: Reproduction, shown: Shown, results: Results) -> dict[str, Any]:
    failed = failures(results)
    facts = {
        "status": "failed" if failed else "finished",
        "recipe": reproduction.name,
        "scale": reproduction.scale,
        "settings": reproduction.settings,
        "cells": shown.sheet.numbers,
        "figures": [str(path) for path in shown.figures],
        "files": str(reproduction.home),
        "failed": failed,
    }
    return {**facts, "exit_code": 1} if failed else facts


def _heading(reproduction: Reproduction) -> None:
    recipe = reproduction.recipe
    console.print(Text(recipe.title, style="bold"))
    typer.echo(f"{recipe.paper.citation}, {recipe.item}")
    if not reproduction.is_full:
        typer.echo(reproduction.at_scale)


def _print(reproduction: Reproduction, shown: Shown) -> None:
    _heading(reproduction)
    table = Table(*shown.sheet.header, box=None)
    for row in shown.sheet.rows:
        table.add_row(*map(Text, row))
    console.print(table)
    for heading, sentences in reproduction.recipe.notes.items():
        typer.echo("\n".join([f"{heading}:", *(f"- {sentence}" for sentence in sentences)]))
    for path in shown.figures:
        typer.echo(f"figure: {path}")
    typer.echo(f"files:  {reproduction.home}")
