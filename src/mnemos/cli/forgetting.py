"""`mnemos forgetting`: how much the clients of a round forgot, by method."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.table import Table
from rich.text import Text

from mnemos.cli.options import Json, check_figure
from mnemos.cli.output import console, print_json
from mnemos.errors import ConfigError
from mnemos.experiment import Experiment
from mnemos.report.curves import draw_curves
from mnemos.report.forgetting import draw_class_heatmaps, draw_heatmaps
from mnemos.runs.forgetting import HOW, measured_rounds, not_measured
from mnemos.runs.run import Run, runs_in
from mnemos.runs.store import overall

_NOT_THE_METHOD = {"seed", "engine", "evaluate", "measures"}
"""Fields that runs of one method may differ in."""


@dataclass(frozen=True)
class _Measured:
    """The means of a run, by round."""

    run: Run
    experiment: Experiment
    diverged: bool
    rounds: list[int]
    forgetting: dict[int, float]
    own: dict[int, float]

    @property
    def asked(self) -> bool:
        """Whether forgetting was to be measured at all."""
        return bool(self.experiment.evaluate.forgetting)


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
    check_figure(figure)
    beside = figure.with_stem(f"{figure.stem}-curve")
    check_figure(beside)
    asked = _numbers(rounds)
    groups = _groups(_measured(paths))
    chosen = _choose(asked, [one for group in groups.values() for one in group])
    shown = {
        label: next((one for one in group if not one.diverged), group[0]) for label, group in groups.items()
    }
    first = {f"{label}, seed {one.experiment.seed}": one.run for label, one in shown.items()}
    draw = draw_class_heatmaps if classes else draw_heatmaps
    drawn = draw(first, chosen, figure, "Local client forgetting")
    runs = {label: [one.run for one in group if one.forgetting] for label, group in groups.items()}
    runs = {label: some for label, some in runs.items() if some}
    curve = draw_curves(runs, beside, "forgetting", "Forgetting of other clients' data") if runs else None
    rows = [_row(label, group, chosen) for label, group in groups.items()]
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


def _measured(paths: Sequence[Path]) -> list[_Measured]:
    """The runs with forgetting, each once."""
    runs: dict[Path, Run] = {}
    for path in paths:
        if not path.is_dir():
            raise ConfigError(f"{path}: there is no such folder")
        found = runs_in(path)
        if not found:
            raise ConfigError(f"{path}: there are no runs here")
        runs |= {run.path.resolve(): run for run in found}
    # A run that didn't converge has its place in the table, however early it ended.
    measured = [one for one in map(_means, runs.values()) if one.rounds or (one.asked and one.diverged)]
    where = ", ".join(map(str, paths))
    if not any(one.rounds for one in measured):
        raise ConfigError(f"{where}: forgetting was not measured in any run; {HOW}")
    if len(measured) < len(runs):
        number = len(runs) - len(measured)
        typer.echo(f"left out: runs without measured forgetting ({number} of {len(runs)})", err=True)
    return measured


def _means(run: Run) -> _Measured:
    metrics = run.metrics
    forgotten, own = (
        overall(metrics, name).dropna(subset="value") for name in ("forgetting", "own_accuracy")
    )
    diverged = run.status.status == "diverged"
    rounds = measured_rounds(metrics)
    return _Measured(run, run.experiment, diverged, rounds, _by_round(forgotten), _by_round(own))


def _by_round(rows: pd.DataFrame) -> dict[int, float]:
    return dict(zip(rows["round"].astype(int), rows["value"], strict=True))


def _groups(measured: Sequence[_Measured]) -> dict[str, list[_Measured]]:
    """Runs by method, and by seed within a method; of a seed that was run twice, the longer run."""
    groups: dict[str, dict[int, _Measured]] = {}
    for one in measured:
        group, seed = groups.setdefault(repr(_settings(one)), {}), one.experiment.seed
        if seed in group:
            one, less = sorted((group[seed], one), key=lambda run: -len(run.rounds))
            typer.echo(f"left out: {less.run.path}, which {one.run.path} repeats", err=True)
        group[seed] = one
    listed = [[group[seed] for seed in sorted(group)] for group in groups.values()]
    return dict(zip(_labels([group[0] for group in listed]), listed, strict=True))


def _labels(methods: Sequence[_Measured]) -> list[str]:
    """Method and loss, with what tells those of the same name apart."""
    names = [
        f"{type(one.experiment.method).name} + {type(one.experiment.method.loss).name}" for one in methods
    ]
    labels = []
    everything = [_settings(one) for one in methods]
    for name, one in zip(names, methods, strict=True):
        own = _settings(one)
        alike = [_settings(two) for two, theirs in zip(methods, names, strict=True) if theirs == name]
        # The name tells methods apart; what else differs, such as a learning rate, it doesn't tell.
        differing = [
            field
            for field in dict.fromkeys(field for other in everything for field in other)
            if any(
                other.get(field) != own.get(field)
                for other in (alike if field.startswith("method.") else everything)
            )
        ]
        if len(differing) <= 3 and all(field in own for field in differing):
            notes = [f"{field}={own[field]}" for field in differing]
        else:
            notes = [one.run.path.name]
        labels.append(", ".join([name, *notes]))
    return [
        f"{label}, {one.run.path}" if labels.count(label) > 1 else label
        for label, one in zip(labels, methods, strict=True)
    ]


def _settings(one: _Measured) -> dict[str, Any]:
    """What makes a method, by dotted names."""
    return dict(_leaves(one.experiment.model_dump(mode="json", exclude=_NOT_THE_METHOD)))


def _leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _choose(asked: list[int] | None, measured: Sequence[_Measured]) -> list[int]:
    """The rounds asked for; else the first, middle and last that all runs have measured."""
    known = sorted({number for one in measured for number in one.rounds})
    if asked is not None:
        for number in asked:
            if number not in known:
                raise ConfigError(not_measured(number, known), "rounds")
        return asked
    converged = [one.rounds for one in measured if not one.diverged]
    common = sorted(set(known).intersection(*(converged or [one.rounds for one in measured if one.rounds])))
    if not common:
        raise ConfigError("the runs measured forgetting in no common round; name some with --rounds")
    return sorted({common[0], common[len(common) // 2], common[-1]})


def _row(label: str, group: Sequence[_Measured], rounds: Sequence[int]) -> dict[str, Any]:
    converged = [one for one in group if not one.diverged]
    return {
        "method": label,
        "seeds": [one.experiment.seed for one in group],
        "diverged": sum(one.diverged for one in group),
        "runs": [str(one.run.path) for one in group],
        "rounds": [
            {
                "round": number,
                "forgetting": _spread([one.forgetting.get(number) for one in converged]),
                "own_accuracy": _spread([one.own.get(number) for one in converged]),
            }
            for number in rounds
        ],
    }


def _spread(values: Sequence[float | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    return {
        "mean": statistics.fmean(known) if known else None,
        "std": statistics.stdev(known) if len(known) > 1 else None,
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
