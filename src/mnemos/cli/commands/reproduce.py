"""`mnemos reproduce`: repeat a table or figure of a paper, and show the paper's numbers beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from mnemos.cli.options import Device, DryRun, Jobs, Json, Out, Quiet, Seeds, Trusted, check_folder
from mnemos.cli.output import print_json
from mnemos.display.terminal import console
from mnemos.errors import ConfigError
from mnemos.studies.reproduce.names import RULES, recipe_names, recipe_title


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="[RECIPE]", help="Such as wsm/table-3, or a path to a file.")
    ] = None,
    every: Annotated[bool, typer.Option("--list", help="List all recipes with their titles.")] = False,
    left: Annotated[
        bool, typer.Option("--left", help="With --list: also the number of runs, and of those left.")
    ] = False,
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate",
            help="With --list: also the runs left and their estimated time; this takes minutes.",
        ),
    ] = False,
    scale: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help=f"Run a smaller version. {RULES} By default, recipes of claims use their own small "
            "setting, and all others run in full.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Run these cells only: a row, a column, or row/column; * stands for anything. "
            "Can be given several times."
        ),
    ] = None,
    seeds: Seeds = None,
    device: Device = None,
    jobs: Jobs = None,
    out: Out = Path("runs/reproduce"),
    figures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where to draw figures, if not beside the table.")
    ] = None,
    dry_run: DryRun = False,
    trust: Trusted = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Reproduce a table or figure of a paper, with the paper's numbers beside ours.

    All recipes keep their runs in one folder: finished runs are reused. Code that a file of yours or others'
    names by import path is imported if you have run it here before, or trust it. With --device, the engine
    auto replaces a recipe's engine that only trains on the CPU.
    """
    if every and not (left or estimate):
        _titles(as_json)
        return
    if not every and (left or estimate):
        option = "estimate" if estimate else "left"
        raise ConfigError("it needs --list; for one recipe, --dry-run estimates the time", option)
    if not every and name is None:
        raise ConfigError("name a recipe, or use --list")
    if figures is not None:
        check_folder(figures, "figures")
    from mnemos.cli.reproducing import Asked, list_recipes, reproduce_recipe  # which import PyTorch

    asked = Asked(scale, out, jobs, quiet, as_json)
    if every or name is None:
        list_recipes(asked, estimate=estimate)
    else:
        cells = (seeds, tuple(only or ()), device)
        reproduce_recipe(name, asked, cells, figures, dry_run=dry_run, trust=trust)


def _titles(as_json: bool) -> None:
    """Print the names and titles of all recipes."""
    rows = [{"recipe": name, "title": recipe_title(name)} for name in recipe_names()]
    if as_json:
        print_json({"status": "finished", "recipes": rows})
        return
    table = Table("recipe", "title", box=None)
    for row in rows:
        table.add_row(row["recipe"], Text(row["title"]))
    console.print(table)
