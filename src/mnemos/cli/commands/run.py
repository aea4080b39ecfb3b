"""`mnemos run`: run one experiment."""

from __future__ import annotations

from typing import Annotated

import typer

from mnemos.cli.looking import TrustedToShow, shown
from mnemos.cli.options import RUNS, Device, Json, Out, Quiet, Track, Words, experiment_reader, split_devices
from mnemos.cli.output import ending, report_run
from mnemos.cli.shown import Show, show_experiment
from mnemos.display.watch import watch
from mnemos.runs.execute import start
from mnemos.track.observe import observe


def run(
    words: Words = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Data: digits, mnist, fashion-mnist, cifar10, cifar100, femnist, …, or the path of an npz, "
            "csv or parquet file or of a folder of images."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model: logistic, mlp, cnn, lenet, resnet18, … (mnemos list models).")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="Federated method: fedavg, fedprox, scaffold, fednova, fedopt, feddyn, moon, fedspace, … "
            "(mnemos list methods)."
        ),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(help="What a client minimises: ce, wsm, tce, fedlc, fedrs, … (mnemos list losses)."),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds.")] = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients.")] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Dirichlet concentration: small is heterogeneous.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="How clients are trained: auto, serial, threads, vmap or ray.")
    ] = None,
    device: Device = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    out: Out = RUNS,
    track: Track = None,
    show: Show = False,
    trust: TrustedToShow = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train one federated experiment, from a recipe or from options alone.

    What is left out has a default: mnemos run is a whole experiment. mnemos list has all names, and
    mnemos show NAME the options of one, which are set as in method.server.lr=0.5.
    """
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
