"""A table of the paper's numbers and ours, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from mnemos.studies.reproduce.cell import CellOutcome, Reported

NOTHING = "–"
"""What stands for a number that was not run yet or not reported."""


@dataclass(frozen=True)
class Sheet:
    """A table in two forms: as text for people, and as numbers for programs."""

    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numbers: Sequence[dict[str, Any]]
    """A mapping for each row, with the same keys in all."""

    def markdown(self) -> str:
        """The text as a Markdown table."""
        lines = [self.header, ("---",) * len(self.header), *self.rows]
        escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
        return "".join(f"| {' | '.join(line)} |\n" for line in escaped)

    def csv(self) -> str:
        """The numbers as comma-separated values; empty where a number is missing."""
        return pd.DataFrame(self.numbers).to_csv(index=False)


def side_by_side(outcomes: Iterable[CellOutcome]) -> Sheet:
    """A sheet with a row for each cell: the paper's number, ours, and the difference."""
    header = ("row", "column", "paper", "ours", "difference", "seeds")
    known = list(outcomes)
    return Sheet(header, [_line(outcome) for outcome in known], [_numbers(outcome) for outcome in known])


def _signed(value: float) -> str:
    return f"{value:+z.3f}".replace("-", "−")


def spread(mean: float | None, std: float | None) -> str:
    """`0.274 ± 0.007`; `0.274` without a standard deviation."""
    if mean is None:
        return NOTHING
    return f"{mean:z.3f}" if std is None else f"{mean:z.3f} ± {std:.3f}"


def ours(outcome: CellOutcome) -> str:
    """Our mean ± std over seeds; NC if no seed converged; with their number if some didn't."""
    if outcome.mean is None:
        return "NC" if outcome.diverged else NOTHING
    lost = f" ({outcome.diverged} NC)" if outcome.diverged else ""
    return spread(outcome.mean, outcome.std) + lost


def _theirs(reported: Reported) -> str:
    return spread(reported.mean, reported.std) if reported.converged else "NC"


def _line(outcome: CellOutcome) -> tuple[str, ...]:
    difference = NOTHING if outcome.difference is None else _signed(outcome.difference)
    seeds = str(len(outcome.values) + outcome.diverged) if outcome.runs else NOTHING
    return (
        outcome.cell.row_name,
        outcome.cell.column,
        _theirs(outcome.cell.reported),
        ours(outcome),
        difference,
        seeds,
    )


def _numbers(outcome: CellOutcome) -> dict[str, Any]:
    reported = outcome.cell.reported
    return {
        "row": outcome.cell.row_name,
        "column": outcome.cell.column,
        "paper_mean": reported.mean,
        "paper_std": reported.std,
        "paper_nc": not reported.converged,
        "ours_mean": outcome.mean,
        "ours_std": outcome.std,
        "seeds": len(outcome.values),
        "nc": outcome.diverged,
        "difference": outcome.difference,
    }
