"""`mnemos timeline`: which task each client works on in each round, without training anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from mnemos.cli.looking import needing_code
from mnemos.cli.options import Json, Words, check_figure, experiment_reader
from mnemos.cli.output import print_json
from mnemos.cli.trusting import Trusted
from mnemos.data.load import load
from mnemos.display.terminal import console
from mnemos.errors import ConfigError
from mnemos.federation.assembly import flow_of


def timeline(
    words: Words = None,
    figure: Annotated[
        Path, typer.Option("--figure", "-o", help="Where to draw it (png, pdf or svg).")
    ] = Path("timeline.png"),
    show: Annotated[int, typer.Option(help="How many clients to draw.", min=1)] = 50,
    trust: Trusted = False,
    as_json: Json = False,
) -> None:
    """Summarise a stream of tasks and draw it: one row per client, coloured by task.

    Code that a recipe names by import path is imported if you have run it here before, or trust it.
    """
    from mnemos.plots.timeline import (  # slow to import, and only needed here
        draw_timeline,
        summarise_tasks,
    )

    check_figure(figure)
    experiment = needing_code(*experiment_reader(words, {}), trust)
    dataset = load(experiment.data)
    flow = flow_of(experiment, dataset)
    if not flow.tasks:
        name = type(experiment.stream).name
        raise ConfigError(f"found {name}, which has no tasks; stream=tasks or stream=aligned has", "stream")
    facts = summarise_tasks(flow)
    drawn = draw_timeline(flow, dataset.classes, figure, clients=show)
    if as_json:
        print_json({"status": "finished", "stream": experiment.stream.dump(), **facts, "figure": str(drawn)})
        return
    table = Table(title=f"{dataset.name}, {type(experiment.stream).name}", show_header=False, box=None)
    for key, value in facts.items():
        text = "never" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
        table.add_row(key.replace("_", " "), text)
    console.print(table)
    typer.echo(f"figure: {drawn}")
