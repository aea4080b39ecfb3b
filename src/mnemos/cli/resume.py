"""`mnemos resume`: continue a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mnemos.cli.options import Json, Quiet, Track
from mnemos.cli.output import ending, report_run, watch
from mnemos.runs import execute
from mnemos.track.observe import observe


def resume(
    path: Annotated[Path, typer.Argument(help="The run's directory.")],
    rounds: Annotated[int | None, typer.Option(help="Go on until this round.")] = None,
    track: Track = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Continue an interrupted run, or a finished one for more rounds."""
    observer = observe(watch(quiet), track or [])
    with ending(observer, as_json):
        report_run(execute.resume(path, rounds, observer), as_json)
