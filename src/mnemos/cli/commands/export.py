"""`mnemos export`: a trained model as a folder for a model hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mnemos.cli.options import Json, Which, check_folder, which
from mnemos.cli.output import print_json
from mnemos.cli.trusting import Trusted, asking
from mnemos.runs.run import Run
from mnemos.runs.trained.export import FILES, Format


def export(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="The run's directory.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder; if not given, exported/NAME of the run.")
    ] = None,
    model: Which = None,
    as_torch: Annotated[
        bool, typer.Option("--torch", help="Also write a torch.export program: model.pt2.")
    ] = False,
    as_onnx: Annotated[
        bool, typer.Option("--onnx", help="Also write the ONNX format: model.onnx (needs the extra 'onnx').")
    ] = False,
    licence: Annotated[
        str, typer.Option("--licence", "--license", help="The model's licence, for the card.")
    ] = "",
    trust: Trusted = False,
    as_json: Json = False,
) -> None:
    """Write a trained model as a folder for a model hub: weights, description, model card.

    `mnemos predict FOLDER FILES` and, in Python, `mnemos.load(FOLDER)` use it without the run.
    """
    run, folder = Run.at(path), out or Path("exported") / path.resolve().name
    check_folder(folder, "out")
    wanted: list[tuple[Format, bool]] = [("torch", as_torch), ("onnx", as_onnx)]
    formats = [name for name, asked in wanted if asked]
    chosen = which(model)
    asking(lambda said: run.export(folder, model=chosen, formats=formats, licence=licence, trust=said), trust)
    files = ["model.safetensors", "config.json", "README.md", *(FILES[name] for name in formats)]
    if as_json:
        print_json({"status": "exported", "run": str(path), "folder": str(folder), "files": files})
        return
    typer.echo(f"files: {folder} ({', '.join(files)})")
    if not licence:
        typer.echo("       README.md says that no licence is given; --licence names one")
    typer.echo(f"next:  mnemos predict {folder} FILES   (classify images, arrays or tables)")
