"""The forgetting of a round as a matrix, read back from a run's metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mnemos.errors import ConfigError, DataError
from mnemos.runs.store import overall

if TYPE_CHECKING:
    import pandas as pd

HOW = "evaluate.forgetting=10 measures it in every tenth round"
"""The end of an error sentence: how to have forgetting measured."""


@dataclass(frozen=True)
class ForgettingMatrix:
    """Accuracies before and after the local training of a round's clients.

    Rows are client models i (the index `model`), columns the data of clients k (`data`) or classes
    (`class`).
    """

    before: pd.Series
    """Acc_k(w_{t−1}), of the global model."""
    after: pd.DataFrame
    """Acc_k(w_t^i), of client i's model."""

    @property
    def forgetting(self) -> pd.DataFrame:
        """F_ki = Acc_k(w_{t−1}) − Acc_k(w_t^i): what model i lost (arXiv 2304.05260, equation 5)."""
        return self.after.rsub(self.before, axis=1)

    @property
    def gain(self) -> pd.DataFrame:
        """Acc_k(w_t^i) − Acc_k(w_{t−1}): the sign in which the earlier paper defines forgetting."""
        return self.after - self.before

    @property
    def of_data(self) -> pd.Series:
        """F_k of equation 6: the mean of F_ki over the models i ≠ k; of a class, over all models."""
        return self._of_others.mean(axis=0)

    @property
    def caused(self) -> pd.Series:
        """What model i made forget: the mean of F_ki over the data k ≠ i, or over all classes."""
        return self._of_others.mean(axis=1)

    @property
    def mean(self) -> float:
        """The mean of F_k; NaN if no model was tested on another client's data."""
        return float(self.of_data.mean())

    @property
    def own(self) -> pd.Series:
        """Acc_k(w_t^k): each model's accuracy on its own client's data; empty for a matrix of classes."""
        return self.after.where(self.is_own).max(axis=0).dropna()

    @property
    def is_own(self) -> pd.DataFrame:
        """Whether an entry is a model on its own client's data; never in a matrix of classes."""
        import pandas as pd  # slow to import, and a run needs none of this

        pairs = np.equal.outer(self.after.index.to_numpy(), self.after.columns.to_numpy())
        return pd.DataFrame(pairs & (self.after.columns.name == "data"), self.after.index, self.after.columns)

    @property
    def _of_others(self) -> pd.DataFrame:
        return self.forgetting.mask(self.is_own)


def measured_rounds(metrics: pd.DataFrame) -> list[int]:
    """The rounds whose forgetting is completely in a run's metrics."""
    import pandas as pd  # slow to import, and a run needs none of this

    # These means are written after the matrix; a round with a single client has only the second.
    ends = [overall(metrics, name)["round"] for name in ("forgetting", "own_accuracy")]
    return sorted({int(round) for round in pd.concat(ends)})


def read_matrix(
    metrics: pd.DataFrame, round: int, *, classes: bool = False, source: Path | str = "metrics"
) -> ForgettingMatrix:
    """The matrix of a round, read from a run's metrics.

    Columns are the clients' data or, with `classes`, the classes of all that data together. Errors name the
    `source` of the metrics.
    """
    rounds = measured_rounds(metrics)
    if round not in rounds:
        raise ConfigError(f"{source}: {not_measured(round, rounds)}")
    column, other = ("class", "client") if classes else ("client", "class")
    rows = metrics[(metrics["round"] == round) & metrics[column].notna() & metrics[other].isna()]
    before, after = (rows[rows["name"] == f"{when}_accuracy"] for when in ("before", "after"))
    after = after[after["model"].notna()]
    if after[["model", column]].duplicated().any() or before[column].duplicated().any():
        raise DataError(f"{source}: the forgetting of round {round} is damaged: some of it is there twice")
    table = after.pivot(index="model", columns=column, values="value").astype(float)
    table = table.rename_axis(columns="class" if classes else "data").sort_index().sort_index(axis=1)
    table.index, table.columns = table.index.astype(int), table.columns.astype(int)
    start = before.set_index(before[column].astype(int))["value"].reindex(table.columns)
    if table.empty or table.isna().any(axis=None) or start.isna().any():
        raise DataError(f"{source}: the forgetting of round {round} is damaged: some of it is missing")
    return ForgettingMatrix(start.rename("before"), table)


def not_measured(round: int, rounds: Sequence[int]) -> str:
    """An error sentence: forgetting was not measured in `round`, but in `rounds`."""
    if not rounds:
        return f"forgetting was not measured; {HOW}"
    shown = [*rounds] if len(rounds) <= 12 else [*rounds[:6], "…", *rounds[-3:]]
    return f"forgetting was not measured in round {round}; measured: {', '.join(map(str, shown))}"
