"""`mnemos list`: what there is to choose from."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from mnemos.cli.options import Json
from mnemos.cli.output import print_json
from mnemos.lookup.find import parts
from mnemos.lookup.text import kinds_text, list_text


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIND]",
            help="Such as methods, losses, partitions or models; all, for the parts of every kind.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the choices: methods, losses, partitions, streams, models, engines, …"""
    found = parts(None if kind == "all" else kind)
    if as_json:
        print_json({"parts": [part.facts() for part in found]})
    elif kind is None:
        typer.echo(kinds_text(Counter(part.kind for part in found)))
    else:
        typer.echo(list_text(found))
