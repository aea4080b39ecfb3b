"""`mnemos forgetting`: how much the clients of a round forgot, by method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from mnemos.cli.options import Json, check_figure
from mnemos.cli.output import console, print_json
from mnemos.errors import ConfigError
from mnemos.report.average import mean_of, std_of
from mnemos.report.groups import Group, group
from mnemos.report.reading import Reading, read, runs_of
from mnemos.runs.forgetting import HOW, not_measured
from mnemos.runs.run import Run


def forgetting(
    paths: Annotated[
        list[Path], typer.Argument(metavar="FOLDER_OR_RUN...", help="Runs, or folders with runs.")
    ],
    rounds: Annotated[
        str | None, typer.Option(help="Rounds such as 1,100,300; else the first, the middle and the last.")
    ] = None,
    classes: Annotated[
        bool, typer.Option("--classes", help="Draw what was forgotten of each class.")
    ] = False,
    figure: Annotated[
        Path,
        typer.Option(
            "--figure", "-o", help="Where to draw it (png, pdf or svg); the curve is put beside it."
        ),
    ] = Path("forgetting.png"),
    as_json: Json = False,
) -> None:
    """Show how much of each other's data clients forget in a round: a table, heat-maps, and a curve.

    Runs that differ in their seed alone are one method; heat-maps are of its first seed.
    """
    # slow to import, and only needed here
    from mnemos.report.curves import draw_curves
    from mnemos.report.forgetting import draw_class_heatmaps, draw_heatmaps

    check_figure(figure)
    beside = figure.with_stem(f"{figure.stem}-curve")
    check_figure(beside)
    asked = _numbers(rounds)
    groups = group(
        _measured(paths),
        lambda sentence: typer.echo(sentence, err=True),
        better=lambda one: len(_rounds(one)),
        ordered=False,
    )
    chosen = _choose(asked, [one for method in groups for one in method.readings])
    draw = draw_class_heatmaps if classes else draw_heatmaps
    drawn = draw(_first_seeds(groups, chosen), chosen, figure, "Local client forgetting")
    runs = {
        method.label: [one.run for one in method.readings if _by_round(one, "forgetting")]
        for method in groups
    }
    runs = {label: some for label, some in runs.items() if some}
    curve = draw_curves(runs, beside, "forgetting", "Forgetting of other clients' data") if runs else None
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


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise ConfigError(f"found '{text}'; expected whole numbers such as 1,100,300", "rounds") from None


def _measured(paths: Sequence[Path]) -> list[Reading]:
    """The runs with forgetting, each once."""
    runs = [read(run) for run in runs_of(paths)]
    # A run that didn't converge has its place in the table, however early it ended.
    measured = [one for one in runs if _rounds(one) or (one.experiment.evaluate.forgetting and one.diverged)]
    where = ", ".join(map(str, paths))
    if not any(_rounds(one) for one in measured):
        raise ConfigError(f"{where}: forgetting was not measured in any run; {HOW}")
    if len(measured) < len(runs):
        number = len(runs) - len(measured)
        typer.echo(f"left out: runs without measured forgetting ({number} of {len(runs)})", err=True)
    return measured


def _rounds(one: Reading) -> list[int]:
    """The rounds whose forgetting was measured: a cohort of one has only the latter of these."""
    known = [one.of(name).round.tolist() for name in ("forgetting", "own_accuracy")]
    return sorted({number for rounds in known for number in rounds})


def _by_round(one: Reading, name: str) -> dict[int, float]:
    rows = one.of(name).finite
    return dict(zip(rows.round.tolist(), rows.value.tolist(), strict=True))


def _first_seeds(groups: Sequence[Group], rounds: Sequence[int]) -> dict[str, Run]:
    """The run of each method that is drawn; a method without any of the rounds would be an empty row."""
    shown: dict[str, Run] = {}
    for method in groups:
        drawn = [one for one in method.readings if set(_rounds(one)) & set(rounds)]
        if drawn:
            one = next((one for one in drawn if not one.diverged), drawn[0])
            shown[f"{method.label}, seed {one.seed}"] = one.run
    return shown


def _choose(asked: list[int] | None, measured: Sequence[Reading]) -> list[int]:
    """The rounds asked for; else the first, middle and last that all runs have measured."""
    known = sorted({number for one in measured for number in _rounds(one)})
    if asked is not None:
        for number in asked:
            if number not in known:
                raise ConfigError(not_measured(number, known), "rounds")
        return asked
    converged = [_rounds(one) for one in measured if not one.diverged]
    common = sorted(set(known).intersection(*(converged or filter(None, map(_rounds, measured)))))
    if not common:
        raise ConfigError("the runs measured forgetting in no common round; name some with --rounds")
    return sorted({common[0], common[len(common) // 2], common[-1]})


def _row(method: Group, rounds: Sequence[int]) -> dict[str, Any]:
    converged = [one for one in method.readings if not one.diverged]
    forgotten, own = ([_by_round(one, name) for one in converged] for name in ("forgetting", "own_accuracy"))
    return {
        "method": method.label,
        "seeds": [one.seed for one in method.readings],
        "diverged": method.diverged,
        "runs": [str(one.run.path) for one in method.readings],
        "rounds": [
            {
                "round": number,
                "forgetting": _spread([values.get(number) for values in forgotten]),
                "own_accuracy": _spread([values.get(number) for values in own]),
            }
            for number in rounds
        ],
    }


def _spread(values: Sequence[float | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    return {
        "mean": mean_of(known) if known else None,
        "std": std_of(known),
        "seeds": len(known),
    }


def _table(rows: Sequence[dict[str, Any]], rounds: Sequence[int]) -> Table:
    heads = [f"F, round {number}" for number in rounds]
    table = Table("method", "seeds", *heads, f"own accuracy, round {rounds[-1]}", box=None)
    for row in rows:
        spreads = [cell["forgetting"] for cell in row["rounds"]]
        spreads.append(row["rounds"][-1]["own_accuracy"])
        seeds = len(row["seeds"])
        cells = (_cell(spread, seeds - row["diverged"], row["diverged"]) for spread in spreads)
        table.add_row(Text(row["method"]), str(seeds), *cells)
    return table


def _cell(spread: dict[str, Any], seeds: int, diverged: int) -> str:
    if spread["mean"] is None:
        return "–" if seeds else "NC"
    plus_minus = "" if spread["std"] is None else f" ± {spread['std']:.3f}"
    some = f" ({spread['seeds']} of {seeds})" if spread["seeds"] < seeds else ""
    some += f" ({diverged} NC)" if diverged else ""
    return f"{spread['mean']:z.3f}{plus_minus}{some}"
