"""`mnemos reproduce`: a table or figure of a paper again, with the paper's numbers beside ours."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mnemos.cli.options import DryRun, Jobs, Json, Out, Quiet, check_folder
from mnemos.cli.output import console, duration, going_on, print_json
from mnemos.cli.overview import overview
from mnemos.cli.plan import makespan, print_plan
from mnemos.cli.variants import Seeds, failures, parse_seeds
from mnemos.errors import ConfigError
from mnemos.reproduce.catalogue import find_recipe, recipe_names
from mnemos.reproduce.reproduction import Reproduction
from mnemos.reproduce.scale import RULES, check_scale
from mnemos.reproduce.show import Shown
from mnemos.reproduce.timing import Timing
from mnemos.runs.pool import carry_out, cores_each, jobs_for
from mnemos.runs.results import Ledger, Results
from mnemos.runs.study import Case


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="[RECIPE]", help="Such as wsm/table-3, or a path to a file.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--list", help="Show all recipes, with the time they take here.")
    ] = False,
    scale: Annotated[float, typer.Option(metavar="S", help=f"A smaller version of it. {RULES}")] = 1.0,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Run these cells only: a row, a column, or row/column; * stands for anything. "
            "Can be given several times."
        ),
    ] = None,
    seeds: Seeds = None,
    jobs: Jobs = None,
    out: Out = Path("runs/reproduce"),
    figures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where to draw figures, if not beside the table.")
    ] = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Repeat a table or figure of a paper, and show the paper's numbers beside ours.

    All recipes keep their runs in one folder: what is there already isn't run again.
    """
    check_scale(scale)
    if every:
        with going_on(as_json, "nothing was run"):
            _list(scale, out, jobs, quiet, as_json)
        return
    if name is None:
        raise ConfigError("it takes the name of a recipe, or --list")
    if figures is not None:
        check_folder(figures, "figures")
    known, recipe = find_recipe(name)
    reproduction = Reproduction(known, recipe, out, scale, parse_seeds(seeds) or (), tuple(only or ()))
    cases = reproduction.cases()
    if dry_run:
        if not as_json:
            _heading(reproduction)
        with going_on(as_json, "nothing was run"):
            print_plan(cases, out, jobs, as_json)
        return
    with going_on(as_json):
        results = carry_out(cases, out, jobs=jobs, view=overview(quiet or not cases))
    shown = reproduction.show(figures)
    if as_json:
        print_json(_facts(reproduction, shown, results))
    else:
        _print(reproduction, shown)
    for result in results.failed:
        typer.echo(f"failed: {result.case}: {result.message}", err=True)
    if results.failed:
        raise SystemExit(1)


def _list(scale: float, out: Path, jobs: int | None, quiet: bool, as_json: bool) -> None:
    """All recipes, with the runs that are left of each and the time they take.

    A terminal shows them at once, and fills in the times, each of which can take a while to find out.
    """
    timing = Timing(out)
    rows: list[dict[str, Any]] = []
    todo: list[list[Case]] = []
    for name in recipe_names():
        known, recipe = find_recipe(name)
        cases = Reproduction(known, recipe, out, scale).cases()
        todo.append(Ledger(cases, out, None).left)
        runs = len({case.experiment.hash() for case in cases})
        rows.append({"recipe": name, "title": recipe.title, "runs": runs, "left": len(todo[-1])})
    alive = console.is_terminal and not as_json
    with Live(console=console, get_renderable=lambda: _recipes(rows)) if alive else nullcontext():
        for row, left in zip(rows, todo, strict=True):
            if not quiet and not alive:
                typer.echo(f"timing {row['recipe']}", err=True)
            at_once = jobs_for(len(left), jobs)
            times = [timing.seconds(case.experiment, cores_each(at_once)) for case in left]
            row["seconds"] = makespan(times, at_once)
    if as_json:
        print_json({"status": "finished", "scale": scale, "recipes": rows})
    elif not alive:
        console.print(_recipes(rows))


def _recipes(rows: list[dict[str, Any]]) -> Table:
    table = Table("recipe", "title", "runs", "left", "time here", box=None)
    for row in rows:
        seconds = row.get("seconds", math.inf)
        time = "–" if seconds is None else "…" if math.isinf(seconds) else duration(seconds)
        table.add_row(row["recipe"], Text(row["title"]), str(row["runs"]), str(row["left"]), time)
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
    if reproduction.scale != 1:
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
