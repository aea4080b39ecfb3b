"""`mnemos run`: run one experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mnemos.cli.looking import TrustedToShow, shown
from mnemos.cli.options import Device, Json, Out, Quiet, Track, Words, experiment_reader, split_devices
from mnemos.cli.output import ending, report_run
from mnemos.cli.shown import Show, show_experiment
from mnemos.display.watch import watch
from mnemos.runs.execute import start
from mnemos.track.observe import observe


def run(
    words: Words = None,
    data: Annotated[
        str | None, typer.Option(help="Data source, or path to an npz, csv or parquet file or image folder.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model.")] = None,
    method: Annotated[str | None, typer.Option(help="Federated method.")] = None,
    loss: Annotated[str | None, typer.Option(help="What a client minimises.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds.")] = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients.")] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Dirichlet concentration: small is heterogeneous.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="How a cohort runs.")] = None,
    device: Device = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    out: Out = Path("runs"),
    track: Track = None,
    show: Show = False,
    trust: TrustedToShow = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train one federated experiment, from a recipe or from options alone."""
    recipe, read = experiment_reader(
        words,
        {
            "data": data,
            "model.name": model,
            "method.name": method,
            "method.loss.name": loss,
            "rounds": rounds,
            "partition.clients": clients,
            "partition.alpha": alpha,
            "engine.name": engine,
            "engine.device": split_devices(device),
            "seed": seed,
        },
    )
    if show:
        show_experiment(*shown(recipe, read, trust), as_json)
        return
    experiment = read()
    observer = observe(watch(quiet), track or [])
    with ending(observer, as_json):
        report_run(start(experiment, out, observer), as_json)
