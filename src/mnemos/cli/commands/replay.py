"""`mnemos replay`: branch off a run at a round, with something changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mnemos.cli.again import Yes, check_length
from mnemos.cli.options import Json, Quiet
from mnemos.cli.output import ending, report_run
from mnemos.cli.trusting import Trusted, asking
from mnemos.display.watch import watch
from mnemos.errors import ConfigError
from mnemos.experiment.overrides import parse_overrides
from mnemos.runs.branch import Branching, branch
from mnemos.runs.run import Run


def replay(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="The run's directory.")],
    start: Annotated[int, typer.Option("--from", min=0, help="The last round that both runs share.")],
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Number of rounds; by default those that the run has left.")
    ] = None,
    without: Annotated[
        list[int] | None, typer.Option(help="A client to leave out; repeat it for several.")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="Such as method.loss=wsm; repeat it for several."),
    ] = None,
    rule: Annotated[str | None, typer.Option(help="How updates are combined: short for method.rule.")] = None,
    reweight: Annotated[
        list[str] | None,
        typer.Option(metavar="CLIENT=FACTOR", help="A factor on a client's weight, such as 12=0.1."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the new run; by default the run's own.")
    ] = None,
    yes: Yes = False,
    trust: Trusted = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Branch off a run at a round: start a new run that continues with a change.

    It names its parent, and without changes it ends like it, bit for bit. 'mnemos resume' continues an
    interrupted one, and 'mnemos report' draws both.
    """
    parent = Run.at(path)
    changes = parse_overrides(change or [])
    changes |= {} if rule is None else {"method.rule": rule}
    at = Branching(start, changes, tuple(without or ()), _factors(reweight or []), rounds)
    check_length(parent, start + 1, start, yes=yes)
    observer = watch(quiet)
    with ending(observer, as_json):
        folder = path.parent if out is None else out
        run = asking(lambda said: branch(parent, at, folder, observer, trust=said), trust)
        report_run(run, as_json)


def _factors(words: list[str]) -> dict[int, float]:
    """The factors by client, from words such as `12=0.1`."""
    found: dict[int, float] = {}
    for word in words:
        client, equals, factor = word.partition("=")
        try:
            if not equals:
                raise ValueError(word)
            found[int(client)] = float(factor)
        except ValueError:
            raise ConfigError(
                f"found '{word}'; expected a client and a factor, such as 12=0.1", "reweight"
            ) from None
    return found
