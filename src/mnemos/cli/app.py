"""`mnemos`: the commands together, and how they end."""

from __future__ import annotations

import json
import sys

import typer

from mnemos.cli import compare, partition, resume, run, runs
from mnemos.errors import MnemosError
from mnemos.version import __version__

app = typer.Typer(
    name="mnemos",
    help="A federated-learning laboratory whose centre is forgetting.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="Exit codes: 0 done, 2 wrong usage or configuration, 3 data missing or damaged, 4 diverged, "
    "130 interrupted with the run saved.",
)
app.command("run", context_settings={"ignore_unknown_options": False})(run.run)
app.command("resume")(resume.resume)
app.command("runs")(runs.runs)
app.command("compare")(compare.compare)
app.command("partition")(partition.partition)


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


def main() -> None:
    """Run a command and end with an exit code that means something."""
    try:
        app()
    except MnemosError as error:
        _end(str(error), error.exit_code)
    except KeyboardInterrupt:
        _end("interrupted; what was finished is saved ('mnemos resume' goes on)", 130)


def _end(sentence: str, code: int) -> None:
    typer.echo(f"error: {sentence}" if code != 130 else sentence, err=True)
    if "--json" in sys.argv:
        status = {4: "diverged", 130: "interrupted"}.get(code, "error")
        typer.echo(json.dumps({"status": status, "error": sentence, "exit_code": code}))
    raise SystemExit(code)
