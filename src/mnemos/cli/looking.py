"""Experiments of files, read to be looked at: code that they name by import path isn't imported unasked."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from mnemos.cli.trusting import asking
from mnemos.common.imports import only
from mnemos.experiment.experiment import Experiment
from mnemos.runs.trust import opened

T = TypeVar("T")

TrustedToShow = Annotated[
    bool, typer.Option("--trust", help="With --show: import the code that the file names by import path.")
]
TrustedToPlan = Annotated[
    bool,
    typer.Option(
        "--trust", help="With --show or --dry-run: import the code that the file names by import path."
    ),
]


def shown(recipe: Path | None, read: Callable[[], T], trust: bool) -> tuple[T, tuple[str, ...]]:
    """(what `read` makes of a recipe, to be shown; the import paths in it that weren't imported).

    Without a recipe the words of the command alone name code: it is imported.
    """
    if recipe is None or trust:
        return needing_code(recipe, read, trust), ()
    with only(()) as named:
        found = read()
    return found, tuple(sorted(named.left))


def needing_code(
    recipe: Path | None,
    read: Callable[[], T],
    trust: bool,
    needed: Callable[[T], Collection[str]] | None = None,
) -> T:
    """What `read` makes of a recipe, with its code imported; asks about code that this user never ran.

    `needed` gives the import paths that are needed; other code isn't imported. None: all of it is needed.
    """
    if recipe is None:
        return read()
    return asking(lambda said: opened(str(recipe), read, said, needed), trust)


def of_samples(experiment: Experiment) -> Collection[str]:
    """All texts in the settings of data and partition, import paths among them."""
    return texts([experiment.data.dump(), experiment.partition.dump()])


def texts(value: Any) -> set[str]:
    """All texts in plain data."""
    if isinstance(value, str):
        return {value}
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {text for inner in inside for text in texts(inner)}
