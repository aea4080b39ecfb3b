"""`mnemos partition`: which samples each client holds, without training anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from mnemos.cli.looking import needing_code, of_samples
from mnemos.cli.options import Json, check_figure, experiment_reader
from mnemos.cli.output import print_json
from mnemos.cli.trusting import Trusted
from mnemos.data.load import load
from mnemos.display.terminal import console
from mnemos.errors import DataError
from mnemos.federation.population import partition_samples


def partition(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DATA or RECIPE] [FIELD=VALUE]...", help="A data source, or an experiment."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", "-n", help="Partition.")] = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Dirichlet concentration.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed.")] = None,
    figure: Annotated[
        Path, typer.Option("--figure", "-o", help="Where to draw it (png, pdf or svg).")
    ] = Path("partition.png"),
    show: Annotated[int, typer.Option(help="How many clients to draw.", min=1)] = 30,
    trust: Trusted = False,
    as_json: Json = False,
) -> None:
    """Summarise a partition and draw it: one bar per client, coloured by class.

    It imports the code that a recipe names for data and partition, if you have run it here before or trust
    it.
    """
    from mnemos.plots.partition import (  # slow to import, and only needed here
        draw_partition,
        summarise,
    )

    check_figure(figure)
    words = list(words or [])
    data = (
        words.pop(0) if words and "=" not in words[0] and not words[0].endswith((".yaml", ".yml")) else None
    )
    recipe, read = experiment_reader(
        words,
        {
            "data": data,
            "partition.name": name,
            "partition.clients": clients,
            "partition.alpha": alpha,
            "seed": seed,
        },
    )
    experiment = needing_code(recipe, read, trust, of_samples)
    dataset = load(experiment.data)
    if dataset.remote:
        raise DataError("data: it stays with its owners, who alone know its labels")
    assignment = partition_samples(experiment, dataset)
    labels = dataset.train.labels.numpy()
    facts = summarise(assignment, labels)
    drawn = draw_partition(assignment, labels, dataset.classes, figure, clients=show)
    if as_json:
        print_json(
            {"status": "finished", "partition": experiment.partition.dump(), **facts, "figure": str(drawn)}
        )
        return
    table = Table(title=f"{dataset.name}, {type(experiment.partition).name}", show_header=False, box=None)
    for key, value in facts.items():
        table.add_row(key.replace("_", " "), f"{value:.3g}" if isinstance(value, float) else str(value))
    console.print(table)
    typer.echo(f"figure: {drawn}")
