"""The first word of a command, before PyTorch is imported, which takes seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import typer

_TRAINING = ("run", "resume", "compare", "sweep", "reproduce", "pretrain")
_SILENT = {"-q", "--quiet", "--help", "--show", "--dry-run", "--list"}
"""Options with which a command says nothing, or answers at once."""
_WITHOUT = {"list", "runs", "show"}
"""Commands that don't import PyTorch."""


@contextmanager
def first_word(command: str, words: Sequence[str]) -> Iterator[None]:
    """Around the import of a command: say on standard error that PyTorch is being loaded.

    On a terminal the line is removed again. Elsewhere only commands that train have it. `words` are the
    command's arguments.
    """
    terminal = sys.stderr.isatty()
    needless = "torch" in sys.modules or command in _WITHOUT
    if needless or _SILENT.intersection(words) or not (terminal or command in _TRAINING):
        yield
        return
    typer.echo(f"mnemos {command}: loading PyTorch", nl=not terminal, err=True)
    try:
        yield
    finally:
        if terminal:
            typer.echo("\r\x1b[2K", nl=False, err=True)
