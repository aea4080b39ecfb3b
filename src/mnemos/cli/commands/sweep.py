"""`mnemos sweep`: run a study, several runs at a time, and print one table."""

from __future__ import annotations

from pathlib import Path

import typer

from mnemos.cli.looking import TrustedToPlan, needing_code, shown
from mnemos.cli.options import Device, DryRun, Jobs, Json, Out, Quiet, Seeds, Track
from mnemos.cli.output import interruptible, print_json
from mnemos.cli.plan import print_plan
from mnemos.cli.shown import Show, show_study
from mnemos.cli.variants import Words, failures, print_table, rows, study_from
from mnemos.display.study import overview
from mnemos.errors import ConfigError
from mnemos.studies.pool import carry_out
from mnemos.studies.results import Result, Results
from mnemos.track.observe import check as check_sinks
from mnemos.track.observe import publish


def sweep(
    words: Words,
    seeds: Seeds = None,
    device: Device = None,
    out: Out = Path("runs"),
    jobs: Jobs = None,
    dry_run: DryRun = False,
    track: Track = None,
    show: Show = False,
    trust: TrustedToPlan = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a study, several runs at once; finished runs are reused, failed ones are marked."""
    if show and dry_run:
        raise ConfigError("found --show and --dry-run; allowed: one of them")
    recipe, read = study_from(words, seeds, device)
    if show:
        show_study(*shown(recipe, read, trust), as_json)
        return
    sinks = check_sinks(track or [])
    if dry_run:  # which is found out by making the federations, and by a few rounds of them
        print_plan(needing_code(recipe, read, trust).cases(), out, jobs, as_json)
        return
    cases = read().cases()
    view = overview(quiet)

    def send(result: Result) -> None:
        """Send an ended run to the sinks. They live in this process, and the run was done in another."""
        if result.run:
            publish(result.run, sinks, lambda sentence: view.warned(result.case, sentence))

    with interruptible(as_json):
        results = carry_out(cases, out, jobs=jobs, view=view, name=recipe.stem, after=send)
    failed = failures(results)
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
    typer.echo(f"next:  mnemos report {out}   (curves, tables and settings on one page)")
