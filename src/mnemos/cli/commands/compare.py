"""`mnemos compare`: run several variants and seeds in turn; print one table and draw one figure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mnemos.cli.looking import TrustedToShow, shown
from mnemos.cli.options import Device, Json, Out, Quiet, Seeds, Track, check_figure
from mnemos.cli.output import interruptible, print_json
from mnemos.cli.shown import Show, show_study
from mnemos.cli.variants import Words, print_table, rows, study_from
from mnemos.display.watch import watch
from mnemos.studies.pool import in_turn
from mnemos.track.observe import check, observe


def compare(
    words: Words,
    seeds: Seeds = None,
    device: Device = None,
    out: Out = Path("runs"),
    figure: Annotated[Path | None, typer.Option(help="Where to draw the curves (png, pdf or svg).")] = None,
    track: Track = None,
    show: Show = False,
    trust: TrustedToShow = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run several variants of an experiment with several seeds, in turn; finished runs are reused."""
    if figure is not None:
        check_figure(figure)
    recipe, read = study_from(words, seeds, device)
    if show:
        show_study(*shown(recipe, read, trust), as_json)
        return
    study = read()
    sinks = check(track or [])
    with interruptible(as_json):
        results = in_turn(
            study.cases(), out, lambda case: observe(watch(quiet, str(case)), sinks), name=recipe.stem
        )
    drawn = None
    if any(results.accuracies(name) for name in results.runs):
        from mnemos.plots.curves import draw_curves  # slow to import, and only needed here

        drawn = draw_curves(results.runs, figure or out / f"{recipe.stem}.png", title=recipe.stem)
    if as_json:
        print_json({"status": "finished", "variants": rows(results), "figure": str(drawn) if drawn else None})
        return
    print_table(results)
    if drawn:
        typer.echo(f"figure: {drawn}")
    typer.echo(f"files:  {out}")
