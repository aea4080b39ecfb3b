"""`mnemos resume`: continue an interrupted run, or a finished one for more rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mnemos.cli.options import Device, Json, Quiet, Track, split_devices
from mnemos.cli.output import ending, report_run
from mnemos.cli.trusting import Trusted, asking
from mnemos.display.watch import watch
from mnemos.runs import execute
from mnemos.track.observe import observe


def resume(
    path: Annotated[Path, typer.Argument(help="The run's directory.")],
    rounds: Annotated[int | None, typer.Option(help="Continue until this round.")] = None,
    device: Device = None,
    trust: Trusted = False,
    track: Track = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Continue an interrupted run, or a finished one for more rounds.

    Code that the run names by import path is imported if you have run it here before, or trust it. With
    --device the run continues on other devices, with different last bits.
    """
    observer = observe(watch(quiet), track or [])
    with ending(observer, as_json):
        names = split_devices(device)
        run = asking(lambda said: execute.resume(path, rounds, observer, trust=said, device=names), trust)
        report_run(run, as_json)
