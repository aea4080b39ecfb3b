"""`mnemos predict`: classify files with a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from mnemos.cli.options import Json, Which, check_file, which
from mnemos.cli.output import print_json
from mnemos.cli.trusting import Trusted, asking
from mnemos.common.files import write_atomically
from mnemos.display.terminal import console
from mnemos.display.words import percent, plural
from mnemos.errors import ConfigError
from mnemos.runs.trained.load import load
from mnemos.runs.trained.model import Predictions

_SHOWN = 50
"""Samples that are printed."""


def predict(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory, or an exported model.")],
    files: Annotated[
        list[str],
        typer.Argument(help="Images, npy or npz files; csv files of features; texts, or files of them."),
    ],
    model: Which = None,
    top: Annotated[int, typer.Option(min=1, help="How many classes to print for each sample.")] = 3,
    resize: Annotated[bool, typer.Option("--resize", help="Scale images of another size.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also write every class's probability as csv.")
    ] = None,
    trust: Trusted = False,
    as_json: Json = False,
) -> None:
    """Classify files with a trained model: images, arrays, tables or texts.

    Samples are scaled as in training. Arrays have the units of the training data; pixels of image files are
    converted. A model of texts takes texts in quotes, and txt, csv, jsonl and parquet files.
    """
    if out is not None:
        check_file(out, (".csv",), "out")
    trained = asking(lambda said: load(path, model=which(model), trust=said), trust)
    found = trained.predict([*files], resize=resize)
    if out is not None:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(out, found.table().to_csv(index=False).encode())
        except OSError as error:
            raise ConfigError(f"{out}: the table can't be written ({error.strerror})") from None
    if as_json:
        print_json({"status": "predicted", "model": str(path), "predictions": _facts(found)})
        return
    console.print(_table(found, top))
    if len(found) > _SHOWN:
        more = f"{len(found) - _SHOWN} more of {plural(len(found), 'sample')}"
        typer.echo(f"… and {more}{f', all in {out}' if out else '; -o FILE.csv writes all of them'}")


def _table(found: Predictions, top: int) -> Table:
    count = min(top, len(found.names))
    table = Table("input", "class", "probability", *(["then"] if count > 1 else []), box=None)
    for sample, name in enumerate(found.inputs[:_SHOWN]):
        (label, share), *others = found.likeliest(sample, count)
        then = ", ".join(f"{other} {percent(its)}" for other, its in others)
        table.add_row(
            Text(name), Text(label, style="bold"), percent(share), *([Text(then)] if others else [])
        )
    return table


def _facts(found: Predictions) -> list[dict[str, Any]]:
    return [
        {
            "input": name,
            "class": label,
            "probability": float(max(shares)),
            "probabilities": dict(zip(found.names, map(float, shares), strict=True)),
        }
        for name, label, shares in zip(found.inputs, found.classes, found.probabilities, strict=True)
    ]
