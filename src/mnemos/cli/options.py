"""Options that several commands share, and how an experiment is read from a command line."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click
import typer

from mnemos.cli.texts import has_texts
from mnemos.errors import ConfigError, allowed
from mnemos.experiment.overrides import parse_overrides

if TYPE_CHECKING:  # and imported where it is needed: a list of runs needn't wait for PyTorch
    from mnemos.experiment.experiment import Experiment

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RECIPE] [FIELD=VALUE]...", help="A YAML file, and changes such as local.lr=0.05."
    ),
]
RUNS = Path("runs")
"""Where commands put runs, and look for them, unless they are told otherwise."""
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for run directories.")]
RunPaths = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FOLDER_OR_RUN...]", help="Runs, or folders with runs; runs/ by default."),
]
Json = Annotated[bool, typer.Option("--json", help="End with one JSON object on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


class _JobsType(click.IntRange):
    """A number of jobs, or `auto`, which is None."""

    name = "integer or auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; None for `auto`."""
        return None if value == "auto" else super().convert(value, param, ctx)


Jobs = Annotated[
    int | None,
    typer.Option(
        click_type=_JobsType(min=1),
        metavar="NUMBER|auto",
        help="Runs at once, each in its own process. auto, the default: one process per core, or per device; "
        "on the CPU, runs of small models share them and train together.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[,NAME...]", help="Where clients train: auto, cpu, cuda, cuda:1, xpu, mps, or several."
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would run and how long it would take; run nothing.")
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SINK[:OPTION=VALUE,...]",
        help="Also send results to csv, tensorboard, mlflow or wandb; repeat it for several.",
    ),
]

Which = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NUMBER|all",
        help="Which model, if clients have different ones: its number, or all for their joint prediction.",
    ),
]

Trusted = Annotated[
    bool,
    typer.Option("--trust", help="Run the code that it names by import path without asking."),
]
Seeds = Annotated[str | None, typer.Option(help="Seeds instead of the recipe's, such as 0,1,2.")]

_FIGURES = (".pdf", ".png", ".svg")


def split_words(words: list[str] | None) -> tuple[Path | None, dict[str, Any]]:
    """Split words into the recipe (the first word, if it has no '='; else None) and the dotted overrides."""
    recipe, overrides = None, []
    for position, word in enumerate(words or []):
        if position == 0 and "=" not in word:
            recipe = Path(word)
        else:
            overrides.append(word)
    return recipe, parse_overrides(overrides)


def split_devices(text: str | None) -> str | list[str] | None:
    """The name in the word of `--device`, or all of them if it has commas; None for None."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    return names[0] if len(names) == 1 else names


def which(word: str | None) -> int | Literal["all"] | None:
    """The model that the word of `--model` chooses; None for None."""
    if word is None:
        return None
    if word == "all":
        return "all"
    if not word.isdecimal():
        raise ConfigError(f"found '{word}'; allowed: the number of a model, or all", "model")
    return int(word)


def data_changes(data: str, options: Collection[str] = ()) -> dict[str, Any]:
    """The changes that choose a data source, given by its name or by the path of a file or folder.

    `options` are the dotted names that the command line sets: some are for texts only.
    """
    path = Path(data)
    by_suffix = {".npz": "npz", ".parquet": "parquet", ".csv": "csv", ".tsv": "csv"}
    by_suffix |= dict.fromkeys((".jsonl", ".ndjson"), "text")
    if path.suffix in by_suffix:
        name = "text" if has_texts(path, options) else by_suffix[path.suffix]
        return {"data": {"name": name, "path": data}}
    if ("/" in data or path.is_dir()) and ":" not in data:
        if not path.is_dir():
            raise ConfigError(f"'{data}' is neither a data source nor a folder of images or texts", "data")
        return {"data": {"name": "text" if has_texts(path, options) else "folder", "path": data}}
    return {"data.name": data}


def check_figure(path: Path) -> None:
    """Refuse a figure that can't be written before anything is computed for it."""
    check_file(path, _FIGURES, "figure")


def check_file(path: Path, suffixes: tuple[str, ...], option: str) -> None:
    """Refuse a file that can't be written before anything is computed for it."""
    if path.suffix.lower() not in suffixes:
        raise ConfigError(f"found '{path}'; {allowed(suffixes)}", option)
    if path.is_dir():
        raise ConfigError(f"found '{path}', which is a folder; expected a file", option)
    nearest = next((parent for parent in path.parents if parent.exists()), path.parent)
    if not nearest.is_dir():
        raise ConfigError(f"found '{path}'; {nearest} is not a folder", option)


def check_folder(path: Path, option: str) -> None:
    """Refuse a path that can't become a folder before anything is computed for it."""
    nearest = next((folder for folder in (path, *path.parents) if folder.exists()), path)
    if nearest.exists() and not nearest.is_dir():
        raise ConfigError(f"found '{path}'; {nearest} is a file, and a folder is expected", option)


def experiment_from(words: list[str] | None, shortcuts: dict[str, Any]) -> Experiment:
    """The experiment of a command line, with the code imported that it names; as `experiment_reader` says."""
    return experiment_reader(words, shortcuts)[1]()


def experiment_reader(
    words: list[str] | None, shortcuts: dict[str, Any]
) -> tuple[Path | None, Callable[[], Experiment]]:
    """The recipe of a command line, if it has one, and what reads the experiment.

    That is the recipe, changed by options such as --rounds, changed by overrides. `shortcuts` are the options
    by dotted name; those that are None weren't given.
    """
    recipe, changes = experiment_changes(words, shortcuts)

    def read() -> Experiment:
        from mnemos.experiment.experiment import load_experiment

        return load_experiment(recipe, changes)

    return recipe, read


def experiment_changes(
    words: list[str] | None, shortcuts: dict[str, Any]
) -> tuple[Path | None, dict[str, Any]]:
    """The recipe of a command line, if it has one, and the changes to it; as `experiment_reader` says."""
    recipe, overrides = split_words(words)
    changes = {name: value for name, value in shortcuts.items() if value is not None}
    data = changes.pop("data", None)
    if data is not None:
        changes = {**data_changes(data, overrides), **changes}
    # An override that replaces a whole part beats the option that names the part, not those for its fields.
    changes = {name: value for name, value in changes.items() if not _replaces(overrides, name)}
    return recipe, {**changes, **overrides}


def _replaces(overrides: dict[str, Any], shortcut: str) -> bool:
    """Whether the overrides replace the whole part that a shortcut such as `method.name` names.

    A mapping of options without a name doesn't.
    """
    field = shortcut.removesuffix(".name")
    return field in overrides and not (isinstance(overrides[field], dict) and "name" not in overrides[field])
