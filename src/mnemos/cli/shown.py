"""`--show`: print the whole experiment instead of running it."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from mnemos.cli.output import console, plural, print_json
from mnemos.experiment.experiment import Experiment
from mnemos.experiment.marked import differences, marked_yaml
from mnemos.experiment.overrides import inline_yaml
from mnemos.studies.study import Study

Show = Annotated[
    bool,
    typer.Option(
        "--show", help="Print the whole experiment, with what differs from the defaults marked; run nothing."
    ),
]


def show_experiment(experiment: Experiment, as_json: bool) -> None:
    """Print an experiment as YAML that `mnemos run` can read, or as JSON."""
    if as_json:
        print_json({"status": "shown", **_facts(experiment)})
    else:
        _print(experiment, "experiment")


def show_study(study: Study, as_json: bool) -> None:
    """Print every variant of a study, with its first seed, as YAML that `mnemos run` can read, or as JSON."""
    shown: dict[str, Experiment] = {}
    for case in study.cases():
        shown.setdefault(case.variant, case.experiment)
    if as_json:
        variants = [{"variant": name, **_facts(experiment)} for name, experiment in shown.items()]
        print_json({"status": "shown", "variants": variants, "seeds": list(study.seeds)})
        return
    for name, experiment in shown.items():
        typer.echo("---")
        _print(
            experiment, f"{inline_yaml(name)}, with the seeds {inline_yaml(list(study.seeds))}: experiment"
        )


def _facts(experiment: Experiment) -> dict[str, Any]:
    changed = {name: difference.facts() for name, difference in differences(experiment).items()}
    return {
        "hash": experiment.hash(),
        "experiment": experiment.model_dump(mode="json"),
        "changed": changed,
    }


def _print(experiment: Experiment, what: str) -> None:
    lines = marked_yaml(experiment)
    marked = plural(sum(line.mark is not None for line in lines), "setting")
    typer.echo(f"# {what} {experiment.hash()}, {marked} marked")
    for line in lines:
        if not console.is_terminal:
            typer.echo(str(line))
            continue
        text = Text(line.text, style="bold green" if line.mark else "")
        if line.mark:
            text.append(f"  # {line.mark}", style="not bold cyan")
        console.print(text, soft_wrap=True)
