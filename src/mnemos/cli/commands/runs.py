"""`mnemos runs`: list the runs in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from mnemos.cli.options import RUNS, Json
from mnemos.cli.output import print_json, run_facts
from mnemos.display.terminal import console
from mnemos.display.words import percent
from mnemos.errors import ConfigError, MnemosError
from mnemos.runs.directory import RunDirectory, directories_in


def runs(
    folder: Annotated[Path, typer.Argument(help="Where to look.")] = RUNS,
    as_json: Json = False,
) -> None:
    """List runs with their state and result."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder")
    facts = [_facts(run) for run in directories_in(folder)]
    if as_json:
        print_json({"runs": facts})
        return
    table = Table("run", "status", "rounds", "accuracy", box=None)
    for fact in facts:
        accuracy = "NC" if fact["status"] == "diverged" else percent(fact["accuracy"])
        table.add_row(Text(fact["run"]), fact["status"], str(fact["rounds"]), accuracy)
    console.print(table if facts else Text(f"no runs in {folder}"))


def _facts(run: RunDirectory) -> dict[str, Any]:
    try:
        return run_facts(run)
    except (
        MnemosError,
        OSError,
    ) as error:  # a run that is damaged, or being removed, must not hide the others
        return {"run": str(run.path), "status": "damaged", "rounds": 0, "accuracy": None, "error": str(error)}
