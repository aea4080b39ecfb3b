"""Forgetting as a sheet: its mean in some rounds, and how well clients do on their own data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mnemos.report.average import mean_of, std_of
from mnemos.reproduce.cell import Outcome
from mnemos.reproduce.table import Sheet, spread
from mnemos.runs.store import overall


def forgetting_sheet(outcomes: Iterable[Outcome], rounds: Sequence[int]) -> Sheet:
    """A line a cell: mean forgetting F in each of the rounds, and own accuracy in the last of them."""
    heads = [*(f"F, round {number}" for number in rounds), f"own accuracy, round {rounds[-1]}"]
    header = ("row", "column", *heads, "seeds")
    lines, numbers = [], []
    for one in outcomes:
        wanted = [*(("forgetting", number) for number in rounds), ("own_accuracy", rounds[-1])]
        # A run that did not converge may have ended before any of the rounds.
        seeds = [means for run in one.runs if (means := _means(run.metrics)).keys() & {*wanted}]
        values = [_spread([seed[key] for seed in seeds if key in seed]) for key in wanted]
        labels = (one.cell.row_name, one.cell.column)
        lines.append((*labels, *(spread(*value) for value in values), str(len(seeds)) if seeds else "–"))
        named: dict[str, Any] = {"row": labels[0], "column": labels[1]}
        for (metric, number), (mean, std) in zip(wanted, values, strict=True):
            named |= {f"{metric}_round_{number}": mean, f"{metric}_round_{number}_std": std}
        numbers.append({**named, "seeds": len(seeds)})
    return Sheet(header, lines, numbers)


def _means(metrics: Any) -> dict[tuple[str, int], float]:
    return {
        (name, int(number)): float(value)
        for name in ("forgetting", "own_accuracy")
        for number, value in overall(metrics, name)[["round", "value"]].itertuples(index=False)
    }


def _spread(values: Sequence[float]) -> tuple[float | None, float | None]:
    return (
        mean_of(values) if values else None,
        std_of(values),
    )
