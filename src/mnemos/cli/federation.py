"""What the commands of `mnemos federate` share: the log, and what `status` prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from mnemos.common.plain import parse_json
from mnemos.display import terminal
from mnemos.display.words import percent
from mnemos.errors import ConfigError, MnemosError
from mnemos.runs.directory import RunDirectory

FILE = "federation.json"
_LOCKS = (".serving", ".lock")
"""The files that are locked while a server, or an owner's client, runs."""
_WELL = {"waiting", "training", "connected", "evaluating"}
"""States in which a server or a client does what it should."""


@contextmanager
def journal(log: Path) -> Iterator[Any]:
    """A journal that prints on standard error and writes into a log file.

    On a terminal, lines are sentences; for a supervisor that collects them, they have a date and a level.
    """
    from mnemos.deployment.journal import Journal

    def show(line: str) -> None:
        """Print a line; on a terminal above the progress bar, if there is one."""
        if terminal.errors.is_terminal:
            terminal.errors.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            typer.echo(line, err=True)

    with closing(Journal(log, show, dated=not terminal.errors.is_terminal)) as say:
        try:
            yield say
        except MnemosError as error:
            say.fail(str(error))
            raise


@dataclass(frozen=True)
class Side:
    """One side of a federation: what its folder says, and whether its process is running."""

    folder: Path
    facts: dict[str, Any]
    running: bool

    @property
    def is_server(self) -> bool:
        """Whether it is the server's side."""
        return "server" in self.facts and isinstance(self.facts["server"], dict)

    @property
    def state(self) -> str:
        """`stopped`, or what it does."""
        known = self.facts["server"] if self.is_server else self.facts
        return str(known.get("state", "")) if self.running else "stopped"

    @property
    def well(self) -> bool:
        """Whether the process is running, and connected or serving."""
        return self.running and self.state in _WELL


def read_side(folder: Path) -> Side:
    """What the folder of a server or of an owner's client says about it."""
    try:
        facts = parse_json((folder / FILE).read_text())
        if not isinstance(facts, dict):
            raise ValueError(FILE)
    except FileNotFoundError:
        raise ConfigError(
            f"{folder} has no file '{FILE}'; expected the folder of a server (--home) or of an owner's "
            "client (--folder) that was started at least once",
            "folder",
        ) from None
    except (OSError, ValueError):
        raise ConfigError(f"{folder / FILE} can't be read", "folder") from None
    return Side(folder, facts, any(RunDirectory(folder).holds(name) for name in _LOCKS))


def print_side(side: Side) -> None:
    """Print the state of a server with its owners, or of an owner's client."""
    if not side.is_server:
        _print_client(side)
        return
    server = side.facts["server"]
    rounds = f", round {server.get('round', 0)}/{server['rounds']}" if server.get("rounds") else ""
    accuracy = f", accuracy {percent(server['accuracy'])}" if server.get("accuracy") is not None else ""
    typer.echo(f"server at {server.get('address', '?')}: {side.state}{rounds}{accuracy}")
    if not side.running:
        typer.echo(f"  (last known: {server.get('state', '?')}, {server.get('written', '?')})")
    if server.get("run"):
        typer.echo(f"run: {server['run']}")
    table = Table("owner", "state", "since", "rounds", "dropped", "rejected", "why", box=None)
    for name, owner in sorted(side.facts.get("owners", {}).items()):
        counts = (str(owner.get(key, 0)) for key in ("answered", "dropped", "rejected"))
        table.add_row(
            Text(name), owner.get("state", ""), owner.get("since", ""), *counts, Text(owner.get("why", ""))
        )
    terminal.console.print(table)
    for mark, when in side.facts.get("strangers", {}).items():
        typer.echo(f"refused: an unknown key ({mark}), last at {when}")


def _print_client(side: Side) -> None:
    facts = side.facts
    typer.echo(f"{facts.get('name') or side.folder.name} at {facts.get('server', '?')}: {side.state}")
    if facts.get("round"):
        rounds = f"/{facts['rounds']}" if facts.get("rounds") else ""
        typer.echo(f"round: {facts['round']}{rounds}")
    if facts.get("accuracy") is not None:
        typer.echo(f"accuracy on own samples: {percent(facts['accuracy'])}")
    if facts.get("run"):
        typer.echo(f"the last run has ended: {facts['run']}")
    if facts.get("model"):
        typer.echo(f"its model: {facts['model']}")


def side_facts(side: Side) -> str:
    """The state as a JSON object."""
    return json.dumps({**side.facts, "running": side.running, "now": side.state, "well": side.well})
