"""A sheet of mean forgetting in some rounds, and of clients' accuracy on their own data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mnemos.report.average import mean_of, std_of
from mnemos.runs.store import overall
from mnemos.studies.reproduce.cell import CellOutcome
from mnemos.studies.reproduce.table import Sheet, spread


def forgetting_sheet(outcomes: Iterable[CellOutcome], rounds: Sequence[int]) -> Sheet:
    """A sheet with a row for each cell: mean forgetting F in each round, and own accuracy in the last."""
    heads = [*(f"F, round {round}" for round in rounds), f"own accuracy, round {rounds[-1]}"]
    header = ("row", "column", *heads, "seeds")
    lines, numbers = [], []
    for outcome in outcomes:
        wanted = [*(("forgetting", round) for round in rounds), ("own_accuracy", rounds[-1])]
        # A run that did not converge may have ended before any of the rounds.
        seeds = [means for run in outcome.runs if (means := _means(run.metrics)).keys() & {*wanted}]
        values = [_spread([seed[key] for seed in seeds if key in seed]) for key in wanted]
        labels = (outcome.cell.row_name, outcome.cell.column)
        lines.append((*labels, *(spread(*value) for value in values), str(len(seeds)) if seeds else "–"))
        named: dict[str, Any] = {"row": labels[0], "column": labels[1]}
        for (metric, round), (mean, std) in zip(wanted, values, strict=True):
            named |= {f"{metric}_round_{round}": mean, f"{metric}_round_{round}_std": std}
        numbers.append({**named, "seeds": len(seeds)})
    return Sheet(header, lines, numbers)


def _means(metrics: Any) -> dict[tuple[str, int], float]:
    """Mean forgetting and own accuracy of a run, by metric and round."""
    return {
        (name, int(round)): float(value)
        for name in ("forgetting", "own_accuracy")
        for round, value in overall(metrics, name)[["round", "value"]].itertuples(index=False)
    }


def _spread(values: Sequence[float]) -> tuple[float | None, float | None]:
    return (
        mean_of(values) if values else None,
        std_of(values),
    )
