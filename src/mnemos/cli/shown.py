"""`--show`: print the whole experiment instead of running it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.text import Text

from mnemos.cli.looking import texts
from mnemos.cli.output import print_json
from mnemos.display.terminal import console
from mnemos.display.words import plural
from mnemos.experiment.experiment import Experiment
from mnemos.experiment.marked import differences, marked_yaml
from mnemos.experiment.overrides import inline_yaml
from mnemos.studies.study import Study

Show = Annotated[
    bool,
    typer.Option(
        "--show", help="Print the whole experiment, with changes from the defaults marked; run nothing."
    ),
]


def show_experiment(experiment: Experiment, not_imported: Sequence[str], as_json: bool) -> None:
    """Print an experiment as YAML that `mnemos run` can read, or as JSON.

    `not_imported` are import paths in it whose parts are shown as they are written.
    """
    if as_json:
        print_json({"status": "shown", **_facts(experiment, not_imported), **_left(not_imported)})
    else:
        _say(not_imported)
        _print(experiment, "experiment", not_imported)


def show_study(study: Study, not_imported: Sequence[str], as_json: bool) -> None:
    """Print every variant of a study, with its first seed, as YAML that `mnemos run` can read, or as JSON.

    `not_imported` are import paths in it whose parts are shown as they are written.
    """
    shown: dict[str, Experiment] = {}
    for case in study.cases():
        shown.setdefault(case.variant, case.experiment)
    if as_json:
        variants = [
            {"variant": name, **_facts(experiment, not_imported)} for name, experiment in shown.items()
        ]
        seeds = list(study.seeds)
        print_json({"status": "shown", "variants": variants, "seeds": seeds, **_left(not_imported)})
        return
    _say(not_imported)
    for name, experiment in shown.items():
        typer.echo("---")
        what = f"{inline_yaml(name)}, with the seeds {inline_yaml(list(study.seeds))}: experiment"
        _print(experiment, what, not_imported)


def _say(not_imported: Sequence[str]) -> None:
    """A comment that names the code that wasn't imported."""
    if not_imported:
        typer.echo(
            f"# not imported, and shown as written, without defaults: {inline_yaml(list(not_imported))}; "
            "--trust imports it"
        )


def _left(not_imported: Sequence[str]) -> dict[str, Any]:
    return {"not_imported": list(not_imported)} if not_imported else {}


def _hash(experiment: Experiment, not_imported: Sequence[str]) -> str | None:
    """The hash that runs of the experiment have; None if that isn't known, as defaults aren't."""
    unknown = texts(experiment.model_dump(mode="json")).intersection(not_imported)
    return None if unknown else experiment.hash()


def _facts(experiment: Experiment, not_imported: Sequence[str]) -> dict[str, Any]:
    changed = {name: difference.facts() for name, difference in differences(experiment).items()}
    return {
        "hash": _hash(experiment, not_imported),
        "experiment": experiment.model_dump(mode="json"),
        "changed": changed,
    }


def _print(experiment: Experiment, what: str, not_imported: Sequence[str]) -> None:
    lines = marked_yaml(experiment)
    marked = plural(sum(line.mark is not None for line in lines), "setting")
    called = " ".join(filter(None, (what, _hash(experiment, not_imported))))
    typer.echo(f"# {called}, {marked} marked")
    for line in lines:
        if not console.is_terminal:
            typer.echo(str(line))
            continue
        text = Text(line.text, style="bold green" if line.mark else "")
        if line.mark:
            text.append(f"  # {line.mark}", style="not bold cyan")
        console.print(text, soft_wrap=True)
