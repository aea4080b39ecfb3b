"""What `mnemos advise` and `mnemos tune` share: their options, and how advice is printed."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from mnemos.cli.output import interruptible, print_json
from mnemos.display.terminal import console
from mnemos.display.words import duration, percent
from mnemos.report.panels.cost import size
from mnemos.studies.advise.advice import RUNNER_UP, WINNER, Advice, advise
from mnemos.studies.advise.description import FederationDescription
from mnemos.studies.advise.search import SearchGoal

BudgetOption = Annotated[
    str, typer.Option("--budget", "-b", help="Time for all pilots, over all calls: 90s, 20m, 2h.")
]
Weight = Annotated[
    float,
    typer.Option(
        "--forgetting", min=0, help="Points of accuracy that a point of forgetting counts; 0: accuracy alone."
    ),
]


def print_description(description: FederationDescription, as_json: bool, figure: Path | None = None) -> None:
    """Print what a federation is like: in words and as a table, or as a JSON object; draw it, if asked to."""
    drawn = None if figure is None else str(description.plot().save(figure))
    if as_json:
        print_json({"status": "finished", **description.facts, **({"figure": drawn} if drawn else {})})
        return
    typer.echo(description)
    table = Table(show_header=False, box=None)
    for key, value in description.facts.items():
        if isinstance(value, int | float | str):
            table.add_row(key.replace("_", " "), f"{value:.3g}" if isinstance(value, float) else str(value))
    console.print(table)
    if drawn:
        typer.echo(f"figure: {drawn}")


def search(goal: SearchGoal, out: Path, budget: float, *, quiet: bool, as_json: bool) -> None:
    """Search for an answer, and print it."""
    say: Callable[[str], None] | None = None if quiet else lambda sentence: typer.echo(sentence, err=True)
    with interruptible(as_json):
        advice = advise(goal, out, budget, say)
    if as_json:
        print_json({"status": "finished", **advice.facts})
        return
    print_advice(advice)


def print_advice(advice: Advice) -> None:
    """Print the federation, the finalists as a table, and what to take."""
    typer.echo(advice.description)
    typer.echo()
    if advice.ranked:
        console.print(_table(advice))
        typer.echo()
    for sentence in advice.sentences:
        typer.echo(sentence)
    for sentence in advice.warnings:
        if sentence not in advice.description.warnings:
            typer.echo(f"warning: {sentence}", err=True)
    typer.echo(f"ruled out: {len(advice.ruled_out)}, each with its reason in {advice.folder / 'advice.json'}")
    if advice.winner:
        again = f"   ({RUNNER_UP}: the cheapest runner-up)" if advice.runner_up else ""
        typer.echo(f"next:  {shlex.join(['mnemos', 'run', str(advice.folder / WINNER)])}{again}")
    typer.echo(f"       {shlex.join(['mnemos', 'report', str(advice.folder)])}   (all of it on one page)")


def _table(advice: Advice) -> Table:
    judged = ("validation accuracy", "95 %", "forgetting", "from the best", "verdict")
    table = Table("", *judged, "time per pilot", "bytes per round", box=None)
    for finalist in advice.ranked:
        ends = (
            "–"
            if finalist.low is None or finalist.high is None
            else f"{100 * finalist.low:.1f} – {100 * finalist.high:.1f}"
        )
        difference = "" if finalist.difference is None else f"{finalist.difference:+.1f}"
        verdict = finalist.verdict + (" *" if finalist.front else "")
        cells = (percent(finalist.accuracy), ends, percent(finalist.forgetting), difference, verdict)
        table.add_row(Text(finalist.name), *cells, duration(finalist.seconds), size(finalist.bytes))
    table.caption = "*: no other has both a higher accuracy and less forgetting" if _fronts(advice) else None
    return table


def _fronts(advice: Advice) -> bool:
    return any(finalist.front for finalist in advice.ranked)
