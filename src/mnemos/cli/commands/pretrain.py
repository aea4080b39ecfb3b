"""`mnemos pretrain`: train an encoder on fractals, or draw the fractals."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from PIL import Image
from pydantic import Field

from mnemos.cli.options import Json, Quiet, check_file, split_words
from mnemos.cli.output import interruptible, print_json
from mnemos.data.fractals import Fractals
from mnemos.display.bars import bars
from mnemos.display.terminal import console, errors
from mnemos.display.watch import RunLines
from mnemos.display.words import percent
from mnemos.errors import ConfigError
from mnemos.experiment.overrides import merge, read_yaml
from mnemos.models.encoder import save_encoder
from mnemos.models.model import Model, models
from mnemos.pretrain.cache import obtain
from mnemos.pretrain.pretraining import Pretraining
from mnemos.pretrain.train import Tell
from mnemos.runs.interrupts import stop_on_terminate

_SIDE = 8
"""A sheet of images has as many rows and columns."""


class PretrainOrder(Pretraining):
    """A pre-training, with the model to train and the size of its images."""

    model: Annotated[Model, models] = Field("resnet18", validate_default=True)
    size: int = Field(32, ge=8, le=1024, description="pixels per side")
    channels: Literal[1, 3] = 3

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        return self.channels, self.size, self.size


def pretrain(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE] [FIELD=VALUE]...", help="A YAML file, and options such as model.width=0.25."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model.")] = None,
    classes: Annotated[int | None, typer.Option(help="Number of fractals, one per class.")] = None,
    images: Annotated[int | None, typer.Option(help="Images per class.")] = None,
    multi: Annotated[bool, typer.Option("--multi", help="Several fractals per image.")] = False,
    size: Annotated[int | None, typer.Option(help="Pixels per side.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the images.")] = None,
    batch: Annotated[int | None, typer.Option(help="Images per step.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the encoder.")] = Path(
        "encoder.safetensors"
    ),
    sheet: Annotated[
        Path | None, typer.Option(help="Only draw 64 of the images that it would be trained on (png).")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train an encoder on fractals, for experiments to start from; an existing one is reused."""
    recipe, changes = split_words(words)
    shortcuts = {
        "model.name": model,
        "classes": classes,
        "images": images,
        "labels": "multi" if multi else None,
        "size": size,
        "epochs": epochs,
        "batch": batch,
        "lr": lr,
        "seed": seed,
    }
    given = {name: value for name, value in shortcuts.items() if value is not None}
    order = PretrainOrder.parse(
        merge(read_yaml(recipe) if recipe else {}, {**given, **changes}, PretrainOrder)
    )
    if sheet is not None:
        check_file(sheet, (".png",), "sheet")
        _draw(order, sheet)
        _say(as_json, {"status": "finished", "sheet": str(sheet)}, f"sheet: {sheet}")
        return
    check_file(out, (".safetensors",), "out")
    order.verify(order.model, order.shape)
    with interruptible(as_json, "no encoder was written"), stop_on_terminate(), _progress(quiet) as tell:
        encoder = obtain(order, order.model, order.shape, tell)
    try:
        save_encoder(out, encoder)
    except OSError as error:
        raise ConfigError(f"found '{out}', which can't be written ({error.strerror})", "out") from None
    if not as_json:
        console.print(f"[bold]{percent(encoder.accuracy)}[/] accuracy on unseen fractals")
    if encoder.doubt:
        typer.echo(f"warning: {encoder.doubt}", err=True)
    data = "cifar10" if order.shape == (3, 32, 32) else "…"
    command = f"mnemos run --data {data} --model {_as_words(order.model)} start.name=file start.path={out}"
    facts = {"encoder": str(out), "digest": encoder.digest, "accuracy": encoder.accuracy}
    _say(
        as_json,
        {"status": "finished", **facts},
        f"files: {out}",
        f"next:  {command}   (any images of {'×'.join(map(str, order.shape))})",
    )


def _as_words(model: Model) -> str:
    """A model's name and the options it was given, as words of a command line."""
    given = model.model_dump(mode="json", include=model.model_fields_set)
    words = (shlex.quote(f"model.{name}={json.dumps(value)}") for name, value in given.items())
    return " ".join([type(model).name, *words])


def _say(as_json: bool, facts: dict[str, Any], *lines: str) -> None:
    if as_json:
        print_json(facts)
    else:
        for line in lines:
            typer.echo(line)


@contextmanager
def _progress(quiet: bool) -> Iterator[Tell]:
    """A function that shows how far the training is: silent, a progress bar on a terminal, or lines."""
    if quiet:
        yield lambda _done, _total, _note: None
    elif not errors.is_terminal:
        yield RunLines().preparing
    else:
        with bars() as shown:
            task = shown.add_task("pre-training", notes=[], total=None)
            yield lambda done, total, note: shown.update(task, completed=done, total=total, notes=[note])


def _draw(order: PretrainOrder, path: Path) -> None:
    """Draw a sheet: an image of each of the first classes, or the first images with several fractals each."""
    fractals: Fractals = order.fractals(order.shape)
    indices = np.arange(_SIDE * _SIDE)
    if order.labels == "multi":
        images, _ = fractals.scenes(indices)
    else:
        images = fractals.images(indices % order.classes, indices // order.classes)
    rows = images.reshape(_SIDE, _SIDE, order.channels, order.size, order.size).transpose(0, 3, 1, 4, 2)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rows.reshape(_SIDE * order.size, _SIDE * order.size, order.channels).squeeze()).save(path)
