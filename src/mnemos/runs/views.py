"""A run at a glance: in a few words, as HTML for notebooks, and as a table."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from mnemos.errors import MnemosError
from mnemos.runs.store import overall

if TYPE_CHECKING:
    import pandas as pd

    from mnemos.runs.run import Run


def in_words(run: Run) -> str:
    """`finished, 50 rounds, 91.2 % accuracy`; what can't be read is said, not raised."""
    try:
        status = run.status
    except MnemosError as error:
        return str(error)
    accuracy = [] if status.accuracy is None else [f"{100 * status.accuracy:.1f} % accuracy"]
    return ", ".join([status.status, f"{status.rounds} rounds", *accuracy])


def as_html(run: Run) -> str:
    """The run's path, state and newest numbers, as HTML."""
    try:
        newest = by_round(run).ffill().tail(1).to_html(float_format="{:.4g}".format)
    except MnemosError as error:
        newest = escape(str(error))
    return f"<p><code>{escape(str(run.path))}</code>: {escape(in_words(run))}</p>{newest}"


def by_round(run: Run) -> pd.DataFrame:
    """The numbers of the whole federation: a row per round, a column per name."""
    return overall(run.metrics).pivot_table(index="round", columns="name", values="value", aggfunc="last")
