"""`mnemos`: the list of commands, how they are loaded, and their exit codes."""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click
import typer
from typer.core import TyperGroup

from mnemos.cli.first_word import first_word
from mnemos.common.imports import look_in
from mnemos.common.shortage import shortage
from mnemos.errors import MnemosError
from mnemos.version import __version__

COMMANDS = {
    "run": "Train one federated experiment, from a recipe or from options alone.",
    "resume": "Continue an interrupted run, or a finished one for more rounds.",
    "replay": "Branch off a run at a round: start a new run that continues with a change.",
    "why": "Explain why a class was lost: in which rounds, in training or aggregation, by whose updates.",
    "list": "List the choices: methods, losses, partitions, streams, models, engines, …",
    "show": "Explain a method, a loss, any other part, or a field: options, formula, an example line.",
    "runs": "List runs with their state and result.",
    "predict": "Classify files with a trained model: images, arrays, tables or texts.",
    "export": "Write a trained model as a folder for a model hub: weights, description, model card.",
    "compare": "Run several variants of an experiment with several seeds, in turn.",
    "sweep": "Run a study, several runs at once.",
    "advise": "Say what a federation is like, and find out by short pilots which method and rate to take.",
    "tune": "Search a study's space by successive halving: short pilots, then several seeds.",
    "partition": "Summarise a partition and draw it: one bar per client, coloured by class.",
    "timeline": "Summarise a stream of tasks and draw it: one row per client, coloured by task.",
    "pretrain": "Train an encoder on fractals, for experiments to start from.",
    "forgetting": "Show how much of each other's data clients forget in a round.",
    "watch": "Follow runs in progress: a table here, and a live report page on this machine.",
    "report": "Write a report on runs: one HTML file that opens from disk and needs no network.",
    "reproduce": "Reproduce a table or figure of a paper, with the paper's numbers beside ours.",
    "doctor": "List what is installed, the devices and data found, and any problems.",
    "federate": "Train where the data is: owners join over Flower, and their data stays with them.",
}
"""Every command with its line of help. It is a module of that name in `commands`; its own help begins with
the same words."""


class _Commands(TyperGroup):
    """Imports a command only when it is called: PyTorch takes seconds to import, and help does without."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {name: click.Command(name, help=words) for name, words in COMMANDS.items()}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known, rest = super().resolve_command(ctx, args)
        if not name or not known:
            return name, None, rest
        if ctx.resilient_parsing:  # a shell completes words
            from mnemos.cli.completion import stand_in

            return name, stand_in(name), rest
        with first_word(name, rest):
            return name, load(name), rest


@cache
def load(name: str) -> click.Command:
    """Import a command from its module; `name` is a key of `COMMANDS`."""
    module = import_module(f"mnemos.cli.commands.{name}")
    command = getattr(module, "app", None)
    if command is None:
        command = typer.Typer(add_completion=False, rich_markup_mode="rich")
        # The command `list` is a function `list_`: Python has a `list` of its own.
        command.command(name)(getattr(module, name, None) or getattr(module, f"{name}_"))
    return typer.main.get_command(command)


app = typer.Typer(
    cls=_Commands,
    name="mnemos",
    help="A federated-learning laboratory whose centre is forgetting.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 data missing or damaged, "
    "4 not converged, 5 paused with the run saved, 130 interrupted with the run saved.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mnemos {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    pass


_command = typer.main.get_command(app)


def main() -> None:
    """Run a command, and end the process with one of the exit codes that the help lists."""
    # As with `python script.py`, modules that a user names are looked for in the working directory.
    look_in(str(Path.cwd()))
    try:
        # In standalone mode, click would draw a box around a usage error, and exit silently on Ctrl-C.
        code = _command(prog_name="mnemos", standalone_mode=False) or 0
    except MnemosError as error:
        _end(str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    except click.ClickException as error:
        _end(_usage(error), error.exit_code)
    except KeyboardInterrupt:
        code = 130
    except (OSError, RuntimeError) as error:
        sentence = shortage(error)
        if sentence is None:
            raise
        _end(sentence, 1)
    if code == 130:
        _end("interrupted", 130)
    raise SystemExit(code)


def _usage(error: click.ClickException) -> str:
    """A usage error as one sentence that names the help to read."""
    sentence = error.format_message().rstrip(".")
    if isinstance(error, click.NoSuchOption) and error.possibilities:  # the closest comes first
        sentence = f"No such option: {error.option_name}. Did you mean {error.possibilities[0]}?"
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "mnemos"
    sentence = re.sub(r"\.? Did you mean", "; did you mean", f"{sentence[:1].lower()}{sentence[1:]}")
    return f"{sentence}{' See' if sentence.endswith('?') else '; see'} '{command} --help'"


def _end(sentence: str, code: int) -> NoReturn:
    sentence = " ".join(sentence.splitlines())
    typer.echo(f"error: {sentence}" if code != 130 else sentence, err=True)
    if "--json" in sys.argv:
        status = {4: "diverged", 5: "paused", 130: "interrupted"}.get(code, "error")
        typer.echo(json.dumps({"status": status, "error": sentence, "exit_code": code}))
    raise SystemExit(code)
