"""`mnemos advise`: what a federation is like, and which method, loss and rate to take for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mnemos.cli.advice import BudgetOption, Weight, print_description, search
from mnemos.cli.looking import needing_code
from mnemos.cli.options import (
    Device,
    Json,
    Out,
    Quiet,
    Words,
    check_figure,
    experiment_changes,
    split_devices,
)
from mnemos.cli.trusting import Trusted
from mnemos.errors import ConfigError
from mnemos.studies.advise.budget import parse_budget
from mnemos.studies.advise.description import base_of, describe
from mnemos.studies.advise.search import SearchGoal
from mnemos.studies.advise.space import default_space


def advise(
    words: Words = None,
    data: Annotated[
        str | None, typer.Option(help="Data source, or path to an npz, csv or parquet file or image folder.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds.")] = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients.")] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Dirichlet concentration: small is heterogeneous.")
    ] = None,
    device: Device = None,
    budget: BudgetOption = "20m",
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of the finalists.")] = 3,
    forgetting: Weight = 0.0,
    only_describe: Annotated[
        bool, typer.Option("--describe", help="Say what the federation is like; train nothing.")
    ] = False,
    figure: Annotated[
        Path | None,
        typer.Option("--figure", help="With --describe: where to draw it (png, pdf or svg)."),
    ] = None,
    out: Out = Path("runs/advise"),
    trust: Trusted = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Say what a federation is like, and find out by short pilots which method and rate to take.

    The file is an experiment or a study, whose base is taken. Pilots are judged on validation data; test data
    isn't touched. What was done is kept in the folder: the same command goes on, or repeats its answer.
    """
    seconds = parse_budget(budget)
    if figure is not None:
        check_figure(figure)
        if not only_describe:
            raise ConfigError("is of what --describe says, and goes with it alone", "--figure")
    recipe, changes = experiment_changes(
        words,
        {
            "data": data,
            "model.name": model,
            "rounds": rounds,
            "partition.clients": clients,
            "partition.alpha": alpha,
            "engine.device": split_devices(device),
        },
    )
    base = needing_code(recipe, lambda: base_of(recipe, changes), trust)
    if only_describe:
        print_description(describe(base), as_json, figure)
        return
    numbers = tuple(range(base.seed + 1, base.seed + 1 + seeds))
    goal = SearchGoal(base, default_space(base), numbers, forgetting)
    search(goal, out, seconds, quiet=quiet, as_json=as_json)
