"""The figure of why a class was lost: its accuracy, what each round did to it, and what each client cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from mnemos.plots.style import COLOURS, Picture, headline

if TYPE_CHECKING:
    from mnemos.runs.why.answer import Answer

_CLIENTS = 12
"""How many clients are shown."""
_LOCAL, _AGGREGATION, _COST = COLOURS[0], COLOURS[1], COLOURS[5]


def why_figure(answer: Answer) -> Picture:
    """Accuracy by round, below it each round's change in two parts, and beside both the clients' costs."""
    figure = Picture(figsize=(9.5, 4.6), layout="constrained")
    ranked = bool(answer.suspects)
    grid = figure.add_gridspec(2, 2 if ranked else 1, width_ratios=[2.2, 1] if ranked else None)
    above = figure.add_subplot(grid[0, 0])
    below = figure.add_subplot(grid[1, 0], sharex=above)
    _accuracy(above, answer)
    _changes(below, answer)
    subject = str(answer.subject)
    headline(above, f"Why {subject} was lost", "dots: the rounds that were looked at closely")
    if ranked:
        _costs(figure.add_subplot(grid[:, 1]), answer)
    return figure


def _accuracy(axes: Axes, answer: Answer) -> None:
    rounds = [*answer.accounts]
    values = [100 * account.after / account.samples for account in answer.accounts.values()]
    axes.plot(rounds, values, color="0.3", linewidth=1.4)
    closely = [round for round in rounds if round in answer.shares]
    axes.plot(closely, [values[rounds.index(round)] for round in closely], "o", color=_COST, markersize=5)
    axes.set_ylabel("accuracy, %")
    axes.tick_params(labelbottom=False)
    _plain(axes)


def _changes(axes: Axes, answer: Answer) -> None:
    rounds = [*answer.accounts]
    local = [100 * float(account.local) for account in answer.accounts.values()]
    aggregation = [100 * float(account.aggregation) for account in answer.accounts.values()]
    axes.bar([round - 0.2 for round in rounds], local, 0.4, color=_LOCAL, label="in local training")
    axes.bar([round + 0.2 for round in rounds], aggregation, 0.4, color=_AGGREGATION, label="in aggregation")
    axes.axhline(0, color="0.4", linewidth=0.8)
    axes.set(xlabel="round", ylabel="change, points")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=8, ncols=2)
    _plain(axes)


def _costs(axes: Axes, answer: Answer) -> None:
    shown = answer.suspects[:_CLIENTS][::-1]
    names = [f"client {suspect.client}" for suspect in shown]
    values = [100 * suspect.cost for suspect in shown]
    errors = [100 * (suspect.error or 0.0) for suspect in shown]
    axes.barh(names, values, xerr=errors, color=_COST, error_kw={"ecolor": "0.3", "elinewidth": 1})
    axes.axvline(0, color="0.4", linewidth=0.8)
    axes.set(xlabel="cost of their updates, points")
    axes.tick_params(axis="y", length=0)
    _plain(axes)


def _plain(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
