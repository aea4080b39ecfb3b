"""`--dry-run`: which runs a study has left, and how long they would take."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from mnemos.cli.output import print_json
from mnemos.display.terminal import console
from mnemos.display.words import duration
from mnemos.runs.find import find
from mnemos.studies.estimate import Estimates
from mnemos.studies.perform import check
from mnemos.studies.pool import cores_each, jobs_for
from mnemos.studies.study import Case


def print_plan(cases: Sequence[Case], out: Path, jobs: int | None, as_json: bool) -> None:
    """Print each case's state and the seconds that it still takes, and the time that all of them take.

    `out` is the folder of the runs, `jobs` how many run at a time; None: one a device or core.
    """
    states = [_state(case, out) for case in cases]
    left = [case for case, (_, done) in zip(cases, states, strict=True) if done < case.experiment.rounds]
    allowed = {id(case): rounds for case, rounds in zip(left, check(left, out), strict=True)}
    jobs = jobs_for(list({case.experiment.hash(): case for case in left}.values()), jobs)
    estimates = Estimates(out, cores=cores_each(jobs))
    plan = [
        _planned(case, state, done, allowed.get(id(case), case.experiment.rounds), estimates)
        for case, (state, done) in zip(cases, states, strict=True)
    ]
    # An experiment that the study has under two names is run once.
    once = {case.experiment.hash(): row["seconds"] for case, row in zip(cases, plan, strict=True)}
    seconds = makespan(list(once.values()), jobs)
    if as_json:
        print_json({"status": "planned", "runs": plan, "jobs": jobs, "seconds": seconds})
        return
    console.print(_table(plan))
    if not left:
        typer.echo(f"nothing to do: all {len(cases)} runs have ended")
        return
    at_once = f", {jobs} at once" if jobs > 1 else ""
    took = "of unknown length" if seconds is None else f"about {duration(seconds)}"
    typer.echo(f"{len(left)} of {len(cases)} runs to do{at_once}: {took}")


def _planned(case: Case, state: str, done: int, total: int, estimates: Estimates) -> dict[str, Any]:
    """A case's row of the plan; `done` of its rounds are done, and `total` are allowed in all."""
    asked = case.experiment.rounds
    whole = estimates.seconds(case.experiment) if done < total else 0.0
    seconds = None if whole is None else whole * (total - done) / asked
    if total < asked:
        state += f", for {total} of {asked} rounds"
    return {"variant": case.variant, "seed": case.experiment.seed, "state": state, "seconds": seconds}


def _table(plan: Sequence[dict[str, Any]]) -> Table:
    table = Table("variant", "seed", "state", "time", box=None)
    for row in plan:
        time = "–" if not row["seconds"] else duration(row["seconds"])
        table.add_row(Text(row["variant"]), str(row["seed"]), row["state"], time)
    return table


def _state(case: Case, out: Path) -> tuple[str, int]:
    """The state of a case in words, and how many of its rounds needn't be done any more."""
    run, rounds = find(case.experiment, out), case.experiment.rounds
    if run is None:
        return "new", 0
    if run.ended:
        return run.status.status, rounds
    return f"resumes at round {min(run.saved_rounds + 1, rounds)}", run.saved_rounds


def makespan(times: Sequence[float | None], jobs: int) -> float | None:
    """Seconds until `jobs` workers have done all jobs if each takes the next when it is free.

    `times` are the jobs' seconds, in order. Returns None if one of them is None, which is unknown.
    """
    free = [0.0] * jobs
    for time in times:
        if time is None:
            return None
        heapq.heapreplace(free, free[0] + time)
    return max(free)
