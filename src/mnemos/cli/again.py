"""What the commands that play rounds of a run again share."""

from __future__ import annotations

from typing import Annotated

import typer

from mnemos.display.words import duration
from mnemos.errors import ConfigError
from mnemos.runs.replay import check_replayable, nearest, seconds_to_play
from mnemos.runs.run import Run

LONG = 600.0
"""Seconds beyond which rounds are played again only with `--yes`."""

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Replay rounds, however long it takes.")]


def check_length(run: Run, first: int, last: int, times: int = 1, *, yes: bool) -> None:
    """Refuse, unless `yes`, to replay rounds `first` to `last`, `times` times, if that takes long."""
    check_replayable(run.experiment)
    seconds = times * seconds_to_play(run, first, last)
    if yes or seconds <= LONG:
        return
    begin = nearest(run, first - 1)
    where = f"from the checkpoint of round {begin}" if begin else "from the start, as no checkpoint was kept"
    raise ConfigError(
        f"{run.path}: replaying rounds {begin + 1} to {last}{', twice' * (times > 1)}, {where}, takes "
        f"about {duration(seconds)}; --yes does it, and checkpoints.keep makes replaying faster"
    )
