"""Continual-learning numbers of a run: average accuracy, forgetting, transfer, and areas under curves.

They are computed from what the measure `continual` has recorded, so any run with that measure can be
summarised at any time. The model was evaluated after rounds r_1 < … < r_E; R is the last of them.

    a_j(e)     accuracy on task j at evaluation e, defined from d_j on, the first evaluation at which task j
               has been discovered (some client has been at it)
    w_j(e)     accuracy on task j if only the task's own classes are allowed as answers; w_j(0) is that of the
               initial model
    b_kj, f_kj the first and the last evaluation at which client k is at task j
    L_k        the tasks that client k was at and has left by R; L is the union of all L_k
    K_j        the clients k with j in L_k whose f_kj ≥ d_j

Clients have orders of their own, so a federation has no "accuracy on task i after task j". The numbers that
are usual for one learner (Lopez-Paz and Ranzato, 2017, arXiv 1706.08840; Chaudhry et al., 2018, arXiv
1801.10112; Díaz-Rodríguez et al., 2018, arXiv 1810.13166; Chaudhry et al., 2019, arXiv 1812.00420) are
defined twice here: for the federation and for a client. If all clients change tasks together, and the model
is evaluated once at the end of each task, both definitions give the usual numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mnemos.data.partition import Floats, Ints
from mnemos.errors import ConfigError
from mnemos.runs.store import BY

if TYPE_CHECKING:
    import pandas as pd

HOW = "measures=[continual] stream=tasks evaluate.test_every=10 records it"
"""The end of an error sentence: how to have these numbers recorded."""

SUMMARY = {
    "average_accuracy": "mean of a_j(R) over discovered tasks; of a client, over those it was at",
    "forgetting_best": "best − last: mean over L of max a_j(e), d_j ≤ e < R, − a_j(R); of a client, over L_k "
    "and from b_kj on",
    "forgetting_first": "first − last: mean over L of a_j(d_j) − a_j(R); of a client, a_j(b_kj) over L_k",
    "forgetting_diagonal": "diagonal − last: mean over L of the mean over K_j of a_j(f_kj), − a_j(R); of a "
    "client, a_j(f_kj) over L_k",
    "backward_transfer": "minus forgetting_diagonal",
    "backward_transfer_over_time": "mean of a_j(e) − a_j(f_kj) over all later evaluations e instead of R",
    "forward_transfer": "mean of w_j − w_j(0) at the last evaluation before the task was discovered; of a "
    "client, before it was at the task",
    "learning_area": "mean over tasks and clients of the mean of a_j(e) while the client is at the task",
    "curve_area": "area under the average accuracy over rounds, divided by their number; of a client, under "
    "its reached_accuracy",
}
"""The summary's numbers and their definitions."""


class TaskRecords(Protocol):
    """The records of one metric, in columns."""

    @property
    def round(self) -> np.ndarray:
        """The round of each record."""

    @property
    def value(self) -> np.ndarray:
        """The value of each record."""

    @property
    def by(self) -> Mapping[str, np.ndarray]:
        """The task and the client of each record, by the column's name."""


@dataclass(frozen=True)
class Course:
    """The accuracies of a run at each evaluation, and the task of each client."""

    rounds: Ints
    """The rounds of the evaluations [E]."""
    tasks: Ints
    """The tasks, by number [T]."""
    clients: Ints
    """The clients, by number [N]."""
    accuracy: Floats
    """a_j(e) [E, T]; NaN before d_j."""
    aware: Floats
    """w_j(e) [E + 1, T]; the first row is the initial model's."""
    at: Ints
    """Each client's task, as an index into `tasks` [E, N]; −1 for none of them."""
    reached: Floats
    """The model's accuracy on the tasks that each client has reached [E, N]."""
    discovered_accuracy: Floats
    all_classes_accuracy: Floats

    @classmethod
    def read(cls, of: Callable[..., TaskRecords]) -> Course | None:
        """The course in a run's records; None if the run didn't record any.

        `of(name, *columns)` returns the records of a metric for which exactly these columns are filled in.
        """
        discovered, everything = of("discovered_accuracy"), of("all_classes_accuracy")
        aware, clients = of("task_aware_accuracy", "task"), of("reached_accuracy", "client", "task")
        rounds = np.unique(discovered.round)
        tasks = np.unique(aware.by.get("task", rounds[:0]))
        if not len(rounds) or not len(tasks):
            return None
        client = clients.by.get("client", rounds[:0])
        known = np.unique(client)
        at = _grid(rounds, known, clients.round, client, clients.by.get("task", client))
        index = np.searchsorted(tasks, np.nan_to_num(at)).clip(max=len(tasks) - 1)
        accuracy = of("task_accuracy", "task")
        return cls(
            rounds,
            tasks,
            known,
            _grid(rounds, tasks, accuracy.round, accuracy.by.get("task", rounds[:0]), accuracy.value),
            _grid(np.array([0, *rounds]), tasks, aware.round, aware.by["task"], aware.value),
            np.where(tasks[index] == at, index, -1),
            _grid(rounds, known, clients.round, client, clients.value),
            _line(rounds, discovered),
            _line(rounds, everything),
        )

    @property
    def summary(self) -> dict[str, float]:
        """The federation's numbers at the last evaluation, by name; NaN where there is nothing to compare."""
        drops, ends = self._drops, self.by_round.iloc[-1]
        later = _mean(-drops["diagonal"])
        return {
            **{name: float(ends[name]) for name in SUMMARY if name in ends},
            "backward_transfer": -float(ends["forgetting_diagonal"]),
            "backward_transfer_over_time": float(later),
            "forward_transfer": float(_mean(self._forward)),
            "learning_area": float(_mean(_mean(self._learning, 0))),
            "curve_area": float(_area(self.rounds, self.by_round["average_accuracy"].to_numpy()[:, None])[0]),
        }

    @cached_property
    def by_round(self) -> pd.DataFrame:
        """The federation's accuracies and forgetting at each evaluation, as if it were the last."""
        import pandas as pd  # slow to import, and a run needs none of this

        values = {
            "average_accuracy": _mean(self.accuracy, 1),
            "discovered_accuracy": self.discovered_accuracy,
            "all_classes_accuracy": self.all_classes_accuracy,
            **{f"forgetting_{kind}": _mean(drop, 1) for kind, drop in self._drops.items()},
        }
        return pd.DataFrame(values, pd.Index(self.rounds, name="round"))

    @property
    def by_task(self) -> pd.DataFrame:
        """The numbers of each task at the last evaluation; `discovered` is the round of d_j."""
        import pandas as pd  # slow to import, and a run needs none of this

        known = np.isfinite(self.accuracy).any(0)
        rounds = np.where(known, self.rounds[np.minimum(self._discovered, len(self.rounds) - 1)], np.nan)
        values = {
            "discovered": rounds,
            "accuracy": self.accuracy[-1],
            "task_aware_accuracy": self.aware[-1],
            **{f"forgetting_{kind}": drop[-1] for kind, drop in self._drops.items()},
            "forward_transfer": self._forward,
            "learning_area": _mean(self._learning, 0),
        }
        return pd.DataFrame(values, pd.Index(self.tasks, name="task"))

    @property
    def by_client(self) -> pd.DataFrame:
        """The summary's numbers of each client, at the last evaluation."""
        import pandas as pd  # slow to import, and a run needs none of this

        begin, _ = self._stays
        last = np.where(begin >= 0, np.nan_to_num(self.accuracy[-1]), np.nan)
        drops = {kind: _mean(drop, 1) for kind, drop in self._own_drops.items()}
        # `aware` has a row more than there are evaluations: row b is the evaluation before b.
        before = np.take_along_axis(self.aware, begin.clip(min=0), 0)
        forward = np.where(begin > 0, before - self.aware[0], np.nan)
        values = {
            "average_accuracy": _mean(last, 1),
            **{f"forgetting_{kind}": drop for kind, drop in drops.items()},
            "backward_transfer": -drops["diagonal"],
            "backward_transfer_over_time": self._own_later,
            "forward_transfer": _mean(forward, 1),
            "learning_area": _mean(self._learning, 1),
            "curve_area": _area(self.rounds, self.reached),
        }
        return pd.DataFrame(values, pd.Index(self.clients, name="client"))

    @cached_property
    def _discovered(self) -> Ints:
        """d_j [T]; E for a task that was never discovered."""
        known = np.isfinite(self.accuracy)
        return np.where(known.any(0), known.argmax(0), len(self.rounds))

    @cached_property
    def _stays(self) -> tuple[Ints, Ints]:
        """b_kj and f_kj [N, T]; −1 if the client was never at the task."""
        begin, end = (np.full((len(self.clients), len(self.tasks)), -1) for _ in range(2))
        for task in range(len(self.tasks)):
            here = self.at == task
            seen = here.any(0)
            begin[:, task] = np.where(seen, here.argmax(0), -1)
            end[:, task] = np.where(seen, len(here) - 1 - here[::-1].argmax(0), -1)
        return begin, end

    @cached_property
    def _left(self) -> np.ndarray:
        """Whether a client has left a task by R [N, T]."""
        end = self._stays[1]
        left: np.ndarray = (end >= 0) & (end < len(self.rounds) - 1)
        return left

    @cached_property
    def _drops(self) -> dict[str, Floats]:
        """How much the federation has forgotten of each task by each evaluation, by definition [E, T]."""
        now, count = self.accuracy, len(self.rounds)
        earlier = np.full_like(now, np.nan)
        earlier[1:] = np.fmax.accumulate(now, axis=0)[:-1]
        first = np.take_along_axis(now, self._discovered.clip(max=count - 1)[None], 0)
        client, task = np.nonzero(self._left)
        end = self._stays[1][client, task]
        values = now[end, task]
        fine = np.isfinite(values)
        gone = _counted(now.shape, end + 1, task, np.ones(len(end)))
        count_left = _counted(now.shape, end + 1, task, fine.astype(float))
        total = _counted(now.shape, end + 1, task, np.nan_to_num(values))
        compared = (gone > 0) & np.isfinite(earlier)
        return {
            "best": np.where(compared, earlier - now, np.nan),
            "first": np.where(compared, first - now, np.nan),
            "diagonal": np.where(count_left > 0, total / np.maximum(count_left, 1) - now, np.nan),
        }

    @cached_property
    def _own_drops(self) -> dict[str, Floats]:
        """How much was forgotten by R of the tasks that each client has left, by definition [N, T]."""
        begin, end = self._stays
        last = len(self.rounds) - 1
        since = np.maximum(begin, self._discovered)
        compared = self._left & (since < last)
        best = np.full_like(self.accuracy, np.nan)
        best[:-1] = np.fmax.accumulate(self.accuracy[-2::-1], axis=0)[::-1]
        since = since.clip(max=last)
        found = {
            "best": np.take_along_axis(best, since, 0),
            "first": np.take_along_axis(self.accuracy, since, 0),
            "diagonal": np.take_along_axis(self.accuracy, end.clip(min=0), 0),
        }
        return {kind: np.where(compared, value - self.accuracy[-1], np.nan) for kind, value in found.items()}

    @property
    def _own_later(self) -> Floats:
        """Each client's mean of a_j(e) − a_j(f_kj) over the tasks it has left and later evaluations [N]."""
        end, now = self._stays[1].clip(min=0), self.accuracy
        then = np.take_along_axis(now, end, 0)
        after = np.zeros_like(now)
        after[:-1] = np.nan_to_num(now)[:0:-1].cumsum(0)[::-1]  # the sum over later evaluations
        later = np.where(self._left & np.isfinite(then), len(now) - 1 - end, 0)
        total = np.where(later > 0, np.take_along_axis(after, end, 0) - later * then, 0.0)
        count = later.sum(1)
        return np.where(count > 0, total.sum(1) / np.maximum(count, 1), np.nan)

    @cached_property
    def _forward(self) -> Floats:
        """The forward transfer of each task that was discovered after the first evaluation [T]."""
        there = (self._discovered > 0) & (self._discovered < len(self.rounds))
        before = np.take_along_axis(self.aware, self._discovered[None], 0)[0]
        return np.where(there, before - self.aware[0], np.nan)

    @cached_property
    def _learning(self) -> Floats:
        """Mean of a_j(e) over the evaluations at which a client is at a task; 0 before d_j [N, T]."""
        begin, end = self._stays
        sums = np.concatenate([np.zeros((1, len(self.tasks))), np.nan_to_num(self.accuracy).cumsum(0)])
        total = np.take_along_axis(sums, end + 1, 0) - np.take_along_axis(sums, begin.clip(min=0), 0)
        return np.where(begin >= 0, total / (end - begin + 1), np.nan)


def read_course(metrics: pd.DataFrame, source: Path | str = "metrics") -> Course:
    """The course of a run, from its metrics. Errors name the `source` of the metrics."""
    course = Course.read(lambda name, *by: _FrameRecords.of(metrics, name, by))
    if course is None:
        raise ConfigError(f"{source}: how tasks fared was not recorded; {HOW}")
    return course


@dataclass(frozen=True)
class _FrameRecords:
    """The records of one metric, from a data frame of metrics."""

    round: Ints
    value: Floats
    by: dict[str, Ints]

    @classmethod
    def of(cls, metrics: pd.DataFrame, name: str, by: tuple[str, ...]) -> _FrameRecords:
        """The records of the metric `name` for which exactly the columns `by` are filled in."""
        wanted = metrics["name"] == name
        for column in BY:
            wanted &= metrics[column].notna() if column in by else metrics[column].isna()
        rows = metrics[wanted]
        ids = {column: rows[column].to_numpy(np.int64) for column in by}
        return cls(rows["round"].to_numpy(np.int64), rows["value"].to_numpy(np.float64), ids)


def _grid(rounds: Ints, ids: Ints, round: np.ndarray, id: np.ndarray, value: np.ndarray) -> Floats:
    """Values in a table with a row for each of `rounds` and a column for each of `ids`; NaN for none.

    `round`, `id` and `value` are those of each record.
    """
    known = np.isin(round, rounds) & np.isin(id, ids)  # an evaluation may be incomplete while it is written
    grid = np.full((len(rounds), len(ids)), np.nan)
    grid[np.searchsorted(rounds, round[known]), np.searchsorted(ids, id[known])] = value[known]
    return grid


def _line(rounds: Ints, rows: TaskRecords) -> Floats:
    """The values of the whole federation, one for each of `rounds`."""
    same = np.zeros(len(rows.round), np.int64)
    return _grid(rounds, np.zeros(1, np.int64), rows.round, same, rows.value)[:, 0]


def _mean(values: Floats, axis: int | None = None) -> Floats:
    """The mean of the values that aren't NaN; NaN where all are."""
    found: Floats = np.ma.filled(np.ma.masked_invalid(values).mean(axis), np.nan)
    return found


def _counted(shape: tuple[int, ...], row: Ints, column: Ints, value: Floats) -> Floats:
    """For each row and column of `shape`, the sum of the values in that column up to that row."""
    table = np.zeros(shape)
    np.add.at(table, (row, column), value)
    return table.cumsum(0)


def _area(rounds: Ints, values: Floats) -> Floats:
    """The mean height of curves (the columns of `values`) over rounds, by the trapezoidal rule."""
    if len(rounds) == 1:
        first: Floats = values[0]
        return first
    steps = np.diff(rounds)[:, None]
    area: Floats = (steps * (values[1:] + values[:-1]) / 2).sum(0) / steps.sum()
    return area
