"""`mnemos doctor`: say what is installed, what the machine has, and what is wrong with it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mnemos.cli.doctor.devices import examine_devices
from mnemos.cli.doctor.finding import Section
from mnemos.cli.doctor.folders import examine_folders
from mnemos.cli.doctor.machine import examine_machine
from mnemos.cli.doctor.optional import examine_extras, examine_tools
from mnemos.cli.doctor.versions import examine_versions, import_torch


def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON object on standard output.")
    ] = False,
) -> None:
    """List what is installed, the devices and data found, and any problems."""
    torch, why = import_torch()
    sections = [
        examine_versions(torch, why),
        examine_devices(torch),
        examine_machine(),
        examine_folders(torch),
        examine_extras(),
        examine_tools(),
    ]
    broken = any(problem.broken for section in sections for problem in section.problems)
    if as_json:
        typer.echo(json.dumps(_facts(sections, broken)))
    else:
        _print(sections)
    if broken:
        raise SystemExit(1)


def _facts(sections: Sequence[Section], broken: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {"status": "broken" if broken else "sound"}
    for section in sections:
        facts |= section.facts
    facts["problems"] = [vars(problem) for section in sections for problem in section.problems]
    return {**facts, "exit_code": 1} if broken else facts


def _print(sections: Sequence[Section]) -> None:
    """Print a table of all sections, and a line for each problem."""
    console = Console(width=None if sys.stdout.isatty() else 1000, highlight=False)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for section in filter(lambda section: section.lines, sections):
        table.add_row(Text(section.title, style="bold"))
        for name, text in section.lines:
            table.add_row(Text(f"  {name}"), Text(text))
    with console.capture() as drawn:
        console.print(table)
    typer.echo("\n".join(line.rstrip() for line in drawn.get().splitlines()))
    problems = [problem for section in sections for problem in section.problems]
    for problem in problems:
        kind = "broken" if problem.broken else "problem"
        console.print(Text(f"{kind}: {problem.what}; what to do: {problem.do}"), soft_wrap=True)
    if not problems:
        console.print("no problems found")
