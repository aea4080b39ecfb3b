"""The paper's numbers and ours, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from mnemos.reproduce.cell import Outcome, Reported

NOTHING = "–"
"""Not run yet, or not reported."""


@dataclass(frozen=True)
class Sheet:
    """A table twice: as text for people, as numbers for programs."""

    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numbers: Sequence[dict[str, Any]]
    """One mapping a row, with the same keys in all."""

    def markdown(self) -> str:
        """A table in Markdown."""
        lines = [self.header, ("---",) * len(self.header), *self.rows]
        escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
        return "".join(f"| {' | '.join(line)} |\n" for line in escaped)

    def csv(self) -> str:
        """Comma-separated values, empty where nothing is known."""
        return pd.DataFrame(self.numbers).to_csv(index=False)


def side_by_side(outcomes: Iterable[Outcome]) -> Sheet:
    """A line a cell: what the paper reports, what we have, and the difference."""
    header = ("row", "column", "paper", "ours", "difference", "seeds")
    known = list(outcomes)
    return Sheet(header, [_line(one) for one in known], [_numbers(one) for one in known])


def _signed(value: float) -> str:
    return f"{value:+z.3f}".replace("-", "−")


def spread(mean: float | None, std: float | None) -> str:
    """`0.274 ± 0.007`, without the second half where there is none."""
    if mean is None:
        return NOTHING
    return f"{mean:z.3f}" if std is None else f"{mean:z.3f} ± {std:.3f}"


def ours(outcome: Outcome) -> str:
    """Mean ± std over seeds; NC where none converged, with a note where some didn't."""
    if outcome.mean is None:
        return "NC" if outcome.diverged else NOTHING
    lost = f" ({outcome.diverged} NC)" if outcome.diverged else ""
    return spread(outcome.mean, outcome.std) + lost


def _theirs(reported: Reported) -> str:
    return spread(reported.mean, reported.std) if reported.converged else "NC"


def _line(one: Outcome) -> tuple[str, ...]:
    difference = NOTHING if one.difference is None else _signed(one.difference)
    seeds = str(len(one.values) + one.diverged) if one.runs else NOTHING
    return (one.cell.row_name, one.cell.column, _theirs(one.cell.reported), ours(one), difference, seeds)


def _numbers(one: Outcome) -> dict[str, Any]:
    reported = one.cell.reported
    return {
        "row": one.cell.row_name,
        "column": one.cell.column,
        "paper_mean": reported.mean,
        "paper_std": reported.std,
        "paper_nc": not reported.converged,
        "ours_mean": one.mean,
        "ours_std": one.std,
        "seeds": len(one.values),
        "nc": one.diverged,
        "difference": one.difference,
    }
