"""`mnemos forgetting`: how much of each other's data clients forget in a round, as a table and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from mnemos.cli.options import RUNS, Json, RunPaths, check_figure
from mnemos.cli.output import print_json
from mnemos.display.terminal import console
from mnemos.errors import ConfigError
from mnemos.report.average import mean_of, std_of
from mnemos.report.groups import RunGroup, group
from mnemos.report.reading import RunReading, read, runs_of
from mnemos.runs.forgetting_matrix import HOW, not_measured
from mnemos.runs.run import Run


def forgetting(
    paths: RunPaths = None,
    rounds: Annotated[
        str | None,
        typer.Option(help="Rounds such as 1,100,300; by default the first, the middle and the last."),
    ] = None,
    classes: Annotated[
        bool, typer.Option("--classes", help="Draw what was forgotten of each class.")
    ] = False,
    beside: Annotated[
        bool,
        typer.Option("--side-by-side", help="Draw only forgetting, with the methods side by side."),
    ] = False,
    figure: Annotated[
        Path,
        typer.Option("--figure", "-o", help="Where to draw it (png, pdf or svg); the curve goes beside it."),
    ] = Path("forgetting.png"),
    as_json: Json = False,
) -> None:
    """Show how much of each other's data clients forget in a round: a table, heat-maps, and a curve.

    Runs that differ only in their seed are one method; heat-maps show its first seed.
    """
    # slow to import, and only needed here
    from mnemos.plots.curves import draw_curves
    from mnemos.plots.forgetting_maps import draw_class_heatmaps, draw_heatmaps, draw_side_by_side

    if classes and beside:
        raise ConfigError("found --side-by-side with --classes; allowed: one of the two", "side-by-side")
    check_figure(figure)
    curve_path = figure.with_stem(f"{figure.stem}-curve")
    check_figure(curve_path)
    asked = _parse_rounds(rounds)
    groups = group(
        _measured(paths or [RUNS]),
        lambda sentence: typer.echo(sentence, err=True),
        better=lambda reading: len(_rounds(reading)),
        ordered=False,
    )
    chosen = _choose(asked, [reading for method in groups for reading in method.readings])
    draw = draw_class_heatmaps if classes else draw_side_by_side if beside else draw_heatmaps
    drawn = draw(_first_seeds(groups, chosen), chosen, figure, "Local client forgetting")
    runs = {
        method.label: [reading.run for reading in method.readings if _by_round(reading, "forgetting")]
        for method in groups
    }
    runs = {label: measured for label, measured in runs.items() if measured}
    curve = draw_curves(runs, curve_path, "forgetting", "Forgetting of other clients' data") if runs else None
    rows = [_row(method, chosen) for method in groups]
    if as_json:
        print_json(
            {
                "status": "finished",
                "methods": rows,
                "figure": str(drawn),
                "curve": str(curve) if curve else None,
            }
        )
        return
    console.print(_table(rows, chosen))
    typer.echo(f"figure: {drawn}")
    if curve:
        typer.echo(f"curve:  {curve}")


def _parse_rounds(text: str | None) -> list[int] | None:
    """The rounds of an option such as `1,100,300`, in order; None if it wasn't given."""
    if text is None:
        return None
    try:
        return sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise ConfigError(f"found '{text}'; expected whole numbers such as 1,100,300", "rounds") from None


def _measured(paths: Sequence[Path]) -> list[RunReading]:
    """The runs under `paths` that measured forgetting, each once."""
    readings = [read(run) for run in runs_of(paths)]
    # A run that was to measure it and didn't converge is in the table too, however early it ended.
    measured = [
        reading
        for reading in readings
        if _rounds(reading) or (reading.experiment.forgetting_rounds and reading.diverged)
    ]
    where = ", ".join(map(str, paths))
    if not any(_rounds(reading) for reading in measured):
        raise ConfigError(f"{where}: forgetting was not measured in any run; {HOW}")
    if len(measured) < len(readings):
        count = len(readings) - len(measured)
        typer.echo(f"left out: runs without measured forgetting ({count} of {len(readings)})", err=True)
    return measured


def _rounds(reading: RunReading) -> list[int]:
    """The rounds in which forgetting was measured. Where a single client trained, only `own_accuracy` was."""
    known = [reading.of(name).round.tolist() for name in ("forgetting", "own_accuracy")]
    return sorted({round for rounds in known for round in rounds})


def _by_round(reading: RunReading, name: str) -> dict[int, float]:
    """The finite values of a metric, by round."""
    rows = reading.of(name).finite
    return dict(zip(rows.round.tolist(), rows.value.tolist(), strict=True))


def _first_seeds(groups: Sequence[RunGroup], rounds: Sequence[int]) -> dict[str, Run]:
    """The run to draw for each method, by its label: the first that converged and measured one of `rounds`.

    A method that measured none of them is left out, because its row of heat-maps would be empty.
    """
    shown: dict[str, Run] = {}
    for method in groups:
        drawn = [reading for reading in method.readings if set(_rounds(reading)) & set(rounds)]
        if drawn:
            first = next((reading for reading in drawn if not reading.diverged), drawn[0])
            shown[f"{method.label}, seed {first.seed}"] = first.run
    return shown


def _choose(asked: list[int] | None, measured: Sequence[RunReading]) -> list[int]:
    """The rounds asked for, or else the first, middle and last of those that all runs have measured."""
    known = sorted({round for reading in measured for round in _rounds(reading)})
    if asked is not None:
        for round in asked:
            if round not in known:
                raise ConfigError(not_measured(round, known), "rounds")
        return asked
    converged = [_rounds(reading) for reading in measured if not reading.diverged]
    common = sorted(set(known).intersection(*(converged or filter(None, map(_rounds, measured)))))
    if not common:
        raise ConfigError("the runs measured forgetting in no common round; name some with --rounds")
    return sorted({common[0], common[len(common) // 2], common[-1]})


def _row(method: RunGroup, rounds: Sequence[int]) -> dict[str, Any]:
    """A method's row of the table, as the JSON object has it."""
    converged = [reading for reading in method.readings if not reading.diverged]
    forgotten = [_by_round(reading, "forgetting") for reading in converged]
    own = [_by_round(reading, "own_accuracy") for reading in converged]
    return {
        "method": method.label,
        "seeds": [reading.seed for reading in method.readings],
        "diverged": method.diverged,
        "runs": [str(reading.run.path) for reading in method.readings],
        "rounds": [
            {
                "round": round,
                "forgetting": _spread([values.get(round) for values in forgotten]),
                "own_accuracy": _spread([values.get(round) for values in own]),
            }
            for round in rounds
        ],
    }


def _spread(values: Sequence[float | None]) -> dict[str, Any]:
    """Mean and standard deviation over the seeds that have a value, and how many seeds these are."""
    known = [value for value in values if value is not None]
    return {
        "mean": mean_of(known) if known else None,
        "std": std_of(known),
        "seeds": len(known),
    }


def _table(rows: Sequence[dict[str, Any]], rounds: Sequence[int]) -> Table:
    heads = [f"F, round {round}" for round in rounds]
    table = Table("method", "seeds", *heads, f"own accuracy, round {rounds[-1]}", box=None)
    for row in rows:
        spreads = [cell["forgetting"] for cell in row["rounds"]]
        spreads.append(row["rounds"][-1]["own_accuracy"])
        seeds = len(row["seeds"])
        cells = (_cell(spread, seeds - row["diverged"], row["diverged"]) for spread in spreads)
        table.add_row(Text(row["method"]), str(seeds), *cells)
    return table


def _cell(spread: dict[str, Any], seeds: int, diverged: int) -> str:
    """`0.123 ± 0.004 (2 of 3) (1 NC)`; `seeds` are those that converged, `diverged` the others."""
    if spread["mean"] is None:
        return "–" if seeds else "NC"
    plus_minus = "" if spread["std"] is None else f" ± {spread['std']:.3f}"
    some = f" ({spread['seeds']} of {seeds})" if spread["seeds"] < seeds else ""
    some += f" ({diverged} NC)" if diverged else ""
    return f"{spread['mean']:z.3f}{plus_minus}{some}"
