"""`mnemos sweep`: many runs at once, one view of them all, one table."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from mnemos.cli.options import Json, Out, Quiet, Track
from mnemos.cli.output import console, duration, going_on, print_json
from mnemos.cli.overview import overview
from mnemos.cli.variants import Seeds, Words, print_table, read_study, rows
from mnemos.runs.estimate import Estimates
from mnemos.runs.perform import check
from mnemos.runs.pool import carry_out, cores_each, jobs_for
from mnemos.runs.results import Result, Results
from mnemos.runs.run import find
from mnemos.runs.study import Case
from mnemos.track.observe import check as check_sinks
from mnemos.track.observe import publish


def sweep(
    words: Words,
    seeds: Seeds = None,
    out: Out = Path("runs"),
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at once; one a core, if not given.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be run and how long it would take; run nothing.")
    ] = False,
    track: Track = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a study, several runs at once; what is finished isn't run again, what fails is marked."""
    recipe, study = read_study(words, seeds)
    cases = study.cases()
    sinks = check_sinks(track or [])
    if dry_run:
        print_plan(cases, out, jobs, as_json)
        return
    view = overview(quiet)

    def send(result: Result) -> None:
        """Sinks get a run when it has ended: they are this process's, and the runs are others'."""
        if result.run:
            publish(result.run, sinks, lambda sentence: view.warned(result.case, sentence))

    with going_on(as_json):
        results = carry_out(cases, out, jobs=jobs, view=view, name=recipe.stem, after=send)
    failed = [_failure(result.case, result.message) for result in results.failed]
    if as_json:
        facts = {"status": "failed" if failed else "finished", "variants": rows(results), "failed": failed}
        print_json({**facts, "exit_code": 1} if failed else facts)
    else:
        _report(results, out)
    if failed:
        raise SystemExit(1)


def _report(results: Results, out: Path) -> None:
    print_table(results)
    for result in results.failed:
        hint = f"; 'mnemos resume {result.run.path}' shows where" if result.run else ""
        typer.echo(f"failed: {result.case}: {result.message}{hint}", err=True)
    typer.echo(f"files: {out}")
    typer.echo(f"next:  mnemos runs {out}   (all runs here)")


def _failure(case: Case, message: str) -> dict[str, Any]:
    return {"variant": case.variant, "seed": case.experiment.seed, "message": message}


def print_plan(cases: Sequence[Case], out: Path, jobs: int | None, as_json: bool) -> None:
    """What there is to do: each run's state, and the seconds it still takes."""
    states = [_state(case, out) for case in cases]
    left = [case for case, (_, rounds) in zip(cases, states, strict=True) if rounds < case.experiment.rounds]
    check(left)
    jobs = jobs_for(len({case.experiment.hash() for case in left}), jobs)
    estimates = Estimates(out, cores=cores_each(jobs))
    plan: list[dict[str, Any]] = []
    for case, (state, rounds) in zip(cases, states, strict=True):
        total = case.experiment.rounds
        whole = estimates.seconds(case.experiment) if rounds < total else 0.0
        seconds = None if whole is None else whole * (total - rounds) / total
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
