"""`mnemos`: the commands together, and how they end."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NoReturn

import click
import typer

from mnemos.cli import (
    compare,
    federate,
    forgetting,
    partition,
    pretrain,
    report,
    reproduce,
    resume,
    run,
    runs,
    sweep,
    timeline,
    watch,
)
from mnemos.errors import MnemosError
from mnemos.version import __version__

app = typer.Typer(
    name="mnemos",
    help="A federated-learning laboratory whose centre is forgetting.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 data missing or damaged, "
    "4 not converged, 5 paused with the run saved, 130 interrupted with the run saved.",
)
app.command("run", context_settings={"ignore_unknown_options": False})(run.run)
app.command("resume")(resume.resume)
app.command("runs")(runs.runs)
app.command("compare")(compare.compare)
app.command("sweep")(sweep.sweep)
app.command("partition")(partition.partition)
app.command("timeline")(timeline.timeline)
app.command("pretrain")(pretrain.pretrain)
app.command("forgetting")(forgetting.forgetting)
app.command("watch")(watch.watch)
app.command("report")(report.report)
app.command("reproduce")(reproduce.reproduce)
app.add_typer(federate.app, name="federate")


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
"""Made once: to look through the signatures of all commands takes as long as a short command."""


def main() -> None:
    """Run a command and end with an exit code that means something."""
    # As with `python script.py`, a user's own modules are found where the command is called.
    sys.path.insert(0, str(Path.cwd()))
    try:
        # Not standalone: that would draw a box around a wrong option, and end without a word on Ctrl-C.
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
    if code == 130:
        _end("interrupted", 130)
    raise SystemExit(code)


def _usage(error: click.ClickException) -> str:
    """What is wrong with the words of a command, and where to look them up."""
    sentence = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "mnemos"
    sentence = f"{sentence[:1].lower()}{sentence[1:]}".replace(" Did you mean", "; did you mean")
    return f"{sentence}{' See' if sentence.endswith('?') else '; see'} '{command} --help'"


def _end(sentence: str, code: int) -> NoReturn:
    sentence = " ".join(sentence.splitlines())
    typer.echo(f"error: {sentence}" if code != 130 else sentence, err=True)
    if "--json" in sys.argv:
        status = {4: "diverged", 5: "paused", 130: "interrupted"}.get(code, "error")
        typer.echo(json.dumps({"status": status, "error": sentence, "exit_code": code}))
    raise SystemExit(code)
