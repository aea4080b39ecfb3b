"""`mnemos why`: which rounds and clients have cost a class its accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from mnemos.cli.again import Yes, check_length
from mnemos.cli.options import Json, check_figure
from mnemos.cli.output import print_json
from mnemos.cli.trusting import Trusted, asking
from mnemos.display.terminal import console
from mnemos.errors import ConfigError
from mnemos.runs.run import Run
from mnemos.runs.why import ask
from mnemos.runs.why.answer import Answer
from mnemos.runs.why.ask import Question, to_play

_SHOWN = 10
"""Rows of each table."""


def why(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="The run's directory.")],
    label: Annotated[
        int | None, typer.Option("--class", help="The class; else the one that has lost most.")
    ] = None,
    rounds: Annotated[
        str | None,
        typer.Option(metavar="FIRST..LAST", help="Rounds such as 30..60, or one; else all with a ledger."),
    ] = None,
    client: Annotated[int | None, typer.Option(help="Only rounds in which this client took part.")] = None,
    task: Annotated[int | None, typer.Option(help="A task of the stream, in place of a class.")] = None,
    closely: Annotated[
        int, typer.Option(min=0, help="How many of the worst rounds to look at closely, for their clients.")
    ] = 3,
    orders: Annotated[
        int,
        typer.Option(min=0, help="Random orders for Shapley values of cohorts of more than 6; 0: none."),
    ] = 20,
    stay_out: Annotated[
        list[int] | None,
        typer.Option(
            metavar="CLIENT", help="Play all the rounds once without this client; repeat it for several."
        ),
    ] = None,
    figure: Annotated[
        Path | None, typer.Option("--figure", "-o", help="Where to draw it (png, pdf or svg).")
    ] = None,
    yes: Yes = False,
    trust: Trusted = False,
    as_json: Json = False,
) -> None:
    """Explain why a class was lost: in which rounds, in training or aggregation, by whose updates.

    Rounds are played again where the run has recorded no ledger (measures: [ledger]), and the worst ones in
    any case, without each of their clients. The run's directory is not written to.
    """
    if figure is not None:
        check_figure(figure)
    run = Run.at(path)
    question = Question(label, task, _range(rounds), client, closely, orders, tuple(stay_out or ()))
    length = to_play(run, question)
    if length is not None:
        check_length(run, *length, yes=yes)
    answer = asking(lambda said: ask.why(run, question, trust=said), trust)
    drawn = None if figure is None else answer.plot().save(figure)
    if as_json:
        print_json({**answer.as_json(), "figure": None if drawn is None else str(drawn)})
        return
    typer.echo(answer.text)
    if answer.falls:
        console.print(_rounds(answer))
    if answer.suspects:
        console.print(_clients(answer))
    if answer.stayed_out:
        console.print(_stayed_out(answer))
    if drawn is not None:
        typer.echo(f"figure: {drawn}")


def _range(text: str | None) -> tuple[int, int] | None:
    """The first and last round of an option such as `30..60` or `37`; None if it wasn't given."""
    if text is None:
        return None
    first, dots, last = text.partition("..")
    try:
        return int(first), int(last if dots else first)
    except ValueError:
        raise ConfigError(f"found '{text}'; expected rounds such as 30..60, or one", "rounds") from None


def _rounds(answer: Answer) -> Table:
    """The worst rounds."""
    table = Table("round", "before", "in local training", "in aggregation", "after", box=None)
    for round in answer.falls[:_SHOWN]:
        account = answer.accounts[round]
        parts = (f"{100 * float(part):+z.1f}" for part in (account.local, account.aggregation))
        before, after = (f"{right / account.samples:.1%}" for right in (account.before, account.after))
        table.add_row(str(round), before, *parts, after)
    return table


def _clients(answer: Answer) -> Table:
    """The clients that have cost most in the rounds that were looked at closely."""
    table = Table("client", "rounds", "holds of it", "cost, points", "leave-one-out", "slope", box=None)
    for suspect in answer.suspects[:_SHOWN]:
        error = f" ± {100 * suspect.error:.1f}" if suspect.error else ""
        slope = "–" if suspect.slope is None else f"{suspect.slope:+z.3f}"
        table.add_row(
            str(suspect.client),
            str(suspect.rounds),
            f"{suspect.held:,}",
            f"{100 * suspect.cost:+z.1f}{error}",
            f"{100 * suspect.leave_one_out:+z.1f}",
            slope,
        )
    return table


def _stayed_out(answer: Answer) -> Table:
    """The accuracy without each client that was asked about, and what its updates have cost by that."""
    last = answer.stayed_out[0].last
    table = Table("stayed out", f"after round {last}", "cost, points", "on average", box=None)
    for one in answer.stayed_out:
        costs = (f"{100 * float(cost):+z.1f}" for cost in (one.cost, one.mean_cost))
        table.add_row(f"client {one.client}", f"{float(one.after):.1%}", *costs)
    return table
