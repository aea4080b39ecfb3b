"""What a study would run, and how long it would take."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from mnemos.cli.output import console, duration, print_json
from mnemos.runs.estimate import Estimates
from mnemos.runs.perform import check
from mnemos.runs.pool import cores_each, jobs_for
from mnemos.runs.run import find
from mnemos.runs.study import Case


def print_plan(cases: Sequence[Case], out: Path, jobs: int | None, as_json: bool) -> None:
    """What there is to do: each run's state, and the seconds it still takes."""
    states = [_state(case, out) for case in cases]
    left = [case for case, (_, rounds) in zip(cases, states, strict=True) if rounds < case.experiment.rounds]
    allowed = {id(case): rounds for case, rounds in zip(left, check(left, out), strict=True)}
    jobs = jobs_for(len({case.experiment.hash() for case in left}), jobs)
    estimates = Estimates(out, cores=cores_each(jobs))
    plan: list[dict[str, Any]] = []
    for case, (state, rounds) in zip(cases, states, strict=True):
        asked = case.experiment.rounds
        total = allowed.get(id(case), asked)
        whole = estimates.seconds(case.experiment) if rounds < total else 0.0
        seconds = None if whole is None else whole * (total - rounds) / asked
        if total < asked:
            state += f", for {total} of {asked} rounds"
        plan.append(
            {"variant": case.variant, "seed": case.experiment.seed, "state": state, "seconds": seconds}
        )
    # An experiment under two names is run once.
    once = {case.experiment.hash(): row["seconds"] for case, row in zip(cases, plan, strict=True)}
    seconds = makespan(list(once.values()), jobs)
    if as_json:
        print_json({"status": "planned", "runs": plan, "jobs": jobs, "seconds": seconds})
        return
    table = Table("variant", "seed", "state", "time", box=None)
    for row in plan:
        time = "–" if not row["seconds"] else duration(row["seconds"])
        table.add_row(Text(row["variant"]), str(row["seed"]), row["state"], time)
    console.print(table)
    if not left:
        typer.echo(f"nothing to do: all {len(cases)} runs have ended")
        return
    at_once = f", {jobs} at once" if jobs > 1 else ""
    took = "of unknown length" if seconds is None else f"about {duration(seconds)}"
    typer.echo(f"{len(left)} of {len(cases)} runs to do{at_once}: {took}")


def _state(case: Case, out: Path) -> tuple[str, int]:
    """Where a case stands, and the rounds it need not do any more."""
    run, rounds = find(case.experiment, out), case.experiment.rounds
    if run is None:
        return "new", 0
    if run.ended:
        return run.status.status, rounds
    return f"resumes at round {min(run.saved_rounds + 1, rounds)}", run.saved_rounds


def makespan(times: Sequence[float | None], jobs: int) -> float | None:
    """Seconds until all are through if whoever is free takes the next; None if one is unknown."""
    free = [0.0] * jobs
    for time in times:
        if time is None:
            return None
        heapq.heapreplace(free, free[0] + time)
    return max(free)
