"""Whether code of other people may run: a person at a terminal is asked, a script says `--trust`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

import click
import typer

from mnemos.cli.options import Trusted as Trusted
from mnemos.runs.trust import Trust, UntrustedError

T = TypeVar("T")


def asking(act: Callable[[Trust], T], trust: bool) -> T:
    """Call `act` with what is trusted, and return its result.

    If it finds code that isn't trusted, ask the person at the terminal and call it again. Without a terminal,
    or if the person says no, the error is raised.
    """
    said: Trust = trust
    while True:
        try:
            return act(said)
        except UntrustedError as error:
            if not _agrees(error):
                raise
            said = error.paths | (frozenset() if isinstance(said, bool) else frozenset(said))


def _agrees(error: UntrustedError) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    typer.echo(f"warning: {error}", err=True)
    try:
        return typer.confirm("Run this code now?", default=False, err=True)
    except click.Abort:  # Ctrl-C, or the end of the input
        return False
