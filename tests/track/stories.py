"""What happens to runs that sinks watch."""

import pytest

import mnemos
from mnemos.runs.store import overall
from support.interrupt import Stop


def interrupted(experiment, out, track, after, lose=0):
    """A run that was stopped after saving a round and before its sinks heard of it.

    With `lose`, that many of its newest checkpoints are gone: the run has to repeat rounds.
    """
    observer = Stop(after)
    with pytest.raises(KeyboardInterrupt):
        mnemos.run(experiment, out=out, observer=observer, track=track)
    run = observer.run
    for path in sorted(run.file("checkpoints").iterdir())[len([*run.file("checkpoints").iterdir()]) - lose :]:
        path.unlink()
    return run


HOLE = {"after": 2}
"""Round 2 is saved, and sinks have round 1 alone."""
REPEATED = {"after": 4, "lose": 2}
"""The newest checkpoint is of an earlier round than the last that sinks have, 3."""


def expected(run):
    """{name: {round: value}} of what speaks of the whole federation."""
    rows = overall(run.metrics)
    return {name: dict(zip(part["round"], part["value"], strict=True)) for name, part in rows.groupby("name")}
