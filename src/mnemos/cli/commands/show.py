"""`mnemos show`: all about one part or field."""

from __future__ import annotations

from typing import Annotated

import typer

from mnemos.cli.options import Json
from mnemos.cli.output import print_json
from mnemos.lookup.find import describe, parts
from mnemos.lookup.index import index
from mnemos.lookup.info import FieldInfo
from mnemos.lookup.kinds import kind_of
from mnemos.lookup.text import list_text, options_text


def show(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A part such as scaffold or corrections/scaffold, a field such as method.server.momentum, "
            "or your own package.module:Class; without it, the fields of an experiment.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain a method, a loss, any other part, or a field: options, formula, an example line."""
    if name is None:
        everything = FieldInfo("", tuple(("", option) for option in index().fields))
        if as_json:
            print_json(everything.facts())
        else:
            typer.echo(options_text(index().fields, ""))
        return
    kind = kind_of(name)
    own = any(option.name == name for option in index().fields)
    if kind is not None and not own and not index().named(name):
        found = parts(kind.name)
        if as_json:
            print_json({"parts": [part.facts() for part in found]})
        else:
            typer.echo(list_text(found))
        return
    one = describe(name)
    if as_json:
        print_json(one.facts())
        return
    typer.echo(str(one))
    if isinstance(one, FieldInfo) and len(kinds := {option.kind for _, option in one.found} - {""}) == 1:
        typer.echo("\n" + list_text(parts(kinds.pop())))
