"""The measures of continual learning: matrices worked out on paper, and plain loops over the definitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from mnemos.errors import ConfigError
from mnemos.measures.measure import Record
from mnemos.runs.store import Store, read_metrics
from mnemos.runs.task_course import SUMMARY, Course, read_course

N = None
"""Not discovered yet."""


def written(
    path: Path,
    rounds: Sequence[int],
    accuracy: Sequence[Sequence[float | None]],
    aware: Sequence[Sequence[float]],
    at: dict[int, Sequence[int]],
    reached: dict[int, Sequence[float]] | None = None,
) -> Course:
    """The course of a run that has recorded these: accuracies [evaluations][tasks], tasks of clients."""
    store = Store(path / "metrics.jsonl")
    store.append(Record(0, "task_aware_accuracy", value, task=j) for j, value in enumerate(aware[0]))
    for place, number in enumerate(rounds):
        store.append(_evaluation(place, number, accuracy[place], aware[place + 1], at, reached or {}))
    store.close()
    return read_course(read_metrics(path / "metrics.jsonl"))


def _evaluation(
    place: int,
    number: int,
    accuracy: Sequence[float | None],
    aware: Sequence[float],
    at: dict[int, Sequence[int]],
    reached: dict[int, Sequence[float]],
) -> Iterator[Record]:
    for j, value in enumerate(aware):
        yield Record(number, "task_aware_accuracy", value, task=j)
    for j, known in enumerate(accuracy):
        if known is not None:
            yield Record(number, "task_accuracy", known, task=j)
    for client, tasks in at.items():
        share = reached[client][place] if client in reached else 0.5
        yield Record(number, "reached_accuracy", share, client=client, task=tasks[place])
    yield Record(number, "test_accuracy", 0.1)
    yield Record(number, "all_classes_accuracy", 0.2 + place / 10)
    yield Record(number, "discovered_accuracy", 0.3 + place / 10)


# --- one learner, as the papers have it ---------------------------------------------------------------

CLASSIC = [[0.9, N, N], [0.95, 0.8, N], [0.5, 0.6, 0.7]]
AWARE = [[0.5, 0.4, 0.3], [1.0, 0.55, 0.35], [1.0, 1.0, 0.65], [1.0, 1.0, 1.0]]


def test_one_learner_by_hand(tmp_path):
    """Three tasks, evaluated at the end of each; R_ij is row i, column j.

    average accuracy  (0.5 + 0.6 + 0.7) / 3 = 0.6
    best − last       (0.95 − 0.5 + 0.8 − 0.6) / 2 = 0.325
    first − last      (0.9 − 0.5 + 0.8 − 0.6) / 2 = 0.3, and diagonal − last the same
    backward transfer −0.3; over all rows below the diagonal (0.05 − 0.4 − 0.2) / 3 = −0.55 / 3
    forward transfer  (0.55 − 0.4 + 0.65 − 0.3) / 2 = 0.25
    learning area     (0.9 + 0.8 + 0.7) / 3 = 0.8
    curve area        averages are 0.9, 0.875, 0.6: ((0.9 + 0.875) / 2 + (0.875 + 0.6) / 2) / 2 = 0.8125
    """
    course = written(tmp_path, [10, 20, 30], CLASSIC, AWARE, {0: [0, 1, 2]}, {0: [0.9, 0.875, 0.6]})
    expected = {
        "average_accuracy": 0.6,
        "forgetting_best": 0.325,
        "forgetting_first": 0.3,
        "forgetting_diagonal": 0.3,
        "backward_transfer": -0.3,
        "backward_transfer_over_time": -0.55 / 3,
        "forward_transfer": 0.25,
        "learning_area": 0.8,
        "curve_area": 0.8125,
    }
    assert list(expected) == list(SUMMARY)
    assert course.summary == pytest.approx(expected)
    assert list(course.by_client.columns) == list(SUMMARY)
    assert course.by_client.loc[0].to_dict() == pytest.approx(expected)


def test_each_round_and_task_by_hand(tmp_path):
    """After round 20, task 0 alone is left: best and first are 0.9, and it has 0.95 by then."""
    course = written(tmp_path, [10, 20, 30], CLASSIC, AWARE, {0: [0, 1, 2]})
    rounds = course.by_round
    assert rounds.index.tolist() == [10, 20, 30]
    assert rounds["average_accuracy"].tolist() == pytest.approx([0.9, 0.875, 0.6])
    assert rounds["discovered_accuracy"].tolist() == pytest.approx([0.3, 0.4, 0.5])
    assert rounds["all_classes_accuracy"].tolist() == pytest.approx([0.2, 0.3, 0.4])
    nan = float("nan")
    for name, values in (
        ("forgetting_best", [nan, -0.05, 0.325]),
        ("forgetting_first", [nan, -0.05, 0.3]),
        ("forgetting_diagonal", [nan, -0.05, 0.3]),
    ):
        assert rounds[name].tolist() == pytest.approx(values, nan_ok=True)
    tasks = course.by_task
    assert tasks["discovered"].tolist() == [10, 20, 30]
    assert tasks["accuracy"].tolist() == [0.5, 0.6, 0.7]
    assert tasks["task_aware_accuracy"].tolist() == [1, 1, 1]
    assert tasks["forgetting_best"].tolist() == pytest.approx([0.45, 0.2, nan], nan_ok=True)
    assert tasks["forward_transfer"].tolist() == pytest.approx([nan, 0.15, 0.35], nan_ok=True)
    assert tasks["learning_area"].tolist() == pytest.approx([0.9, 0.8, 0.7])


def test_clients_that_change_tasks_together_are_one_learner(tmp_path):
    alone = written(_new(tmp_path / "a"), [10, 20, 30], CLASSIC, AWARE, {0: [0, 1, 2]})
    at = {client: [0, 1, 2] for client in (0, 3, 8)}
    together = written(_new(tmp_path / "b"), [10, 20, 30], CLASSIC, AWARE, at)
    assert together.summary == pytest.approx(alone.summary)


# --- clients with orders of their own -----------------------------------------------------------------


def test_two_orders_by_hand(tmp_path):
    """Client 0 is at tasks 0, 0, 1, 1; client 7 at 1, 1, 1, 2, but wasn't selected before the second time.

    Left are task 0 (by client 0, f at the second evaluation) and task 1 (by client 7, f at the third).

    best − last       (0.8 − 0.5 + 0.7 − 0.3) / 2 = 0.35
    first − last      (0.6 − 0.5 + 0.4 − 0.3) / 2 = 0.1
    diagonal − last   (0.75 − 0.5 + 0.7 − 0.3) / 2 = 0.325
    over time         (0.05 − 0.25 − 0.4) / 3 = −0.2
    forward transfer  task 1 before its discovery 0.6 − 0.5, task 2 0.7 − 0.5: 0.15
    learning area     task 0: (0.6 + 0.75) / 2 = 0.675; task 1: the mean of (0.7 + 0.3) / 2 and
                      (0 + 0.4 + 0.7) / 3; task 2: 0.9
    curve area        averages are 0.6, 0.575, 0.75 and 1.7 / 3
    """
    accuracy = [[0.6, N, N], [0.75, 0.4, N], [0.8, 0.7, N], [0.5, 0.3, 0.9]]
    aware = [[0.5, 0.5, 0.5], [0.9, 0.6, 0.5], [0.9, 0.9, 0.55], [0.9, 0.9, 0.7], [0.9, 0.9, 0.9]]
    at = {0: [0, 0, 1, 1], 7: [1, 1, 1, 2]}
    reached = {0: [0.6, 0.8, 0.4, 0.2], 7: [0.0, 0.4, 0.6, 0.6]}
    course = written(tmp_path, [5, 10, 15, 20], accuracy, aware, at, reached)
    learning = (0.675 + (0.5 + 1.1 / 3) / 2 + 0.9) / 3
    assert course.summary == pytest.approx(
        {
            "average_accuracy": 1.7 / 3,
            "forgetting_best": 0.35,
            "forgetting_first": 0.1,
            "forgetting_diagonal": 0.325,
            "backward_transfer": -0.325,
            "backward_transfer_over_time": -0.2,
            "forward_transfer": 0.15,
            "learning_area": learning,
            "curve_area": (0.6 / 2 + 0.575 + 0.75 + 1.7 / 6) / 3,
        }
    )
    clients = course.by_client
    assert clients.loc[0].to_dict() == pytest.approx(
        {
            "average_accuracy": 0.4,
            "forgetting_best": 0.3,
            "forgetting_first": 0.1,
            "forgetting_diagonal": 0.25,
            "backward_transfer": -0.25,
            "backward_transfer_over_time": -0.1,
            "forward_transfer": 0.4,
            "learning_area": (0.675 + 0.5) / 2,
            "curve_area": (0.3 + 0.8 + 0.4 + 0.1) / 3,
        }
    )
    assert clients.loc[7].to_dict() == pytest.approx(
        {
            "average_accuracy": 0.6,
            "forgetting_best": 0.4,
            "forgetting_first": 0.1,
            "forgetting_diagonal": 0.4,
            "backward_transfer": -0.4,
            "backward_transfer_over_time": -0.4,
            "forward_transfer": 0.2,
            "learning_area": (1.1 / 3 + 0.9) / 2,
            "curve_area": (0.0 + 0.4 + 0.6 + 0.3) / 3,
        }
    )


def test_nothing_to_compare_is_not_a_number(tmp_path):
    """One evaluation, at which the one client is at its first task."""
    course = written(tmp_path, [5], [[0.6, N]], [[0.5, 0.5], [0.9, 0.4]], {0: [0]})
    summary = course.summary
    assert {name for name, value in summary.items() if not np.isnan(value)} == {
        "average_accuracy",
        "learning_area",
        "curve_area",
    }
    assert summary["curve_area"] == summary["average_accuracy"] == 0.6
    assert course.by_client["forgetting_best"].isna().all()


def test_an_evaluation_that_is_being_written_does_not_count(tmp_path):
    course = written(tmp_path, [10, 20, 30], CLASSIC, AWARE, {0: [0, 1, 2]})
    lines = (tmp_path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "metrics.jsonl").write_bytes(b"".join(lines[:-1]))
    short = read_course(read_metrics(tmp_path / "metrics.jsonl"))
    assert short.rounds.tolist() == [10, 20]
    assert short.summary["forgetting_best"] == pytest.approx(course.by_round["forgetting_best"].loc[20])


def test_a_run_without_the_measure(tmp_path):
    store = Store(tmp_path / "metrics.jsonl")
    store.append([Record(1, "test_accuracy", 0.5)])
    store.close()
    with pytest.raises(ConfigError, match=r"^some/run: how tasks fared was not recorded; measures=\[contin"):
        read_course(read_metrics(tmp_path / "metrics.jsonl"), "some/run")


# --- against the definitions, letter by letter --------------------------------------------------------


def draw(seed: int) -> tuple[list[int], np.ndarray, np.ndarray, dict[int, list[int]], dict[int, list[float]]]:
    """A run of some evaluations, tasks and clients; tasks are discovered one after the other."""
    make = np.random.default_rng(seed)
    count, tasks, clients = (int(make.integers(*ends)) for ends in ((2, 9), (2, 6), (1, 5)))
    rounds = np.cumsum(make.integers(1, 7, count)).tolist()
    accuracy, aware = make.random((count, tasks)), make.random((count + 1, tasks))
    begin = make.integers(0, count + 1, tasks)
    begin[make.integers(tasks)] = 0
    accuracy[np.arange(count)[:, None] < begin] = np.nan
    at, reached = {}, {}
    for client in range(clients):
        places = np.sort(make.integers(0, tasks, count))
        at[3 * client] = make.permutation(tasks)[places].tolist()
        reached[3 * client] = make.random(count).tolist()
    return rounds, accuracy, aware, at, reached


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def area(rounds: list[int], values: Sequence[float]) -> float:
    pairs = [(rounds[e + 1] - rounds[e]) * (values[e] + values[e + 1]) / 2 for e in range(len(rounds) - 1)]
    return sum(pairs) / (rounds[-1] - rounds[0])


def plainly(rounds, a, w, at, reached) -> tuple[dict[str, float], dict[int, dict[str, float]]]:
    """The summary of the federation and of each client, by loops."""
    last, tasks = len(rounds) - 1, range(a.shape[1])
    known = {j: [e for e in range(last + 1) if not np.isnan(a[e, j])] for j in tasks}
    stays = {
        (k, j): [e for e, task in enumerate(line) if task == j]
        for k, line in at.items()
        for j in tasks
        if j in line
    }
    left = {pair for pair, stay in stays.items() if stay[-1] < last}
    gone = [j for j in tasks if any(j == other for _, other in left) and known[j] and known[j][0] < last]
    ends = {(k, j): a[stays[k, j][-1], j] for k, j in left if not np.isnan(a[stays[k, j][-1], j])}
    diagonal = {j: mean([value for (_, i), value in ends.items() if i == j]) for j in tasks}
    diagonal = {j: value for j, value in diagonal.items() if not np.isnan(value)}
    later = []
    for j in tasks:
        for e in range(last + 1):
            then = [value for (k, i), value in ends.items() if i == j and stays[k, j][-1] < e]
            if then:
                later.append(a[e, j] - mean(then))
    learning = {
        (k, j): mean([0.0 if np.isnan(a[e, j]) else a[e, j] for e in stay]) for (k, j), stay in stays.items()
    }
    averages = [mean([a[e, j] for j in tasks if e in known[j]]) for e in range(last + 1)]
    total = mean([diagonal[j] - a[last, j] for j in diagonal])
    federation = {
        "average_accuracy": averages[-1],
        "forgetting_best": mean([max(a[e, j] for e in known[j][:-1]) - a[last, j] for j in gone]),
        "forgetting_first": mean([a[known[j][0], j] - a[last, j] for j in gone]),
        "forgetting_diagonal": total,
        "backward_transfer": -total,
        "backward_transfer_over_time": mean(later),
        "forward_transfer": mean(
            [w[known[j][0], j] - w[0, j] for j in tasks if known[j] and known[j][0] > 0]
        ),
        "learning_area": mean(
            [
                mean([value for (_, i), value in learning.items() if i == j])
                for j in tasks
                if any(i == j for _, i in learning)
            ]
        ),
        "curve_area": area(rounds, averages),
    }
    clients = {}
    for k in at:
        mine = [j for j in tasks if (k, j) in stays]
        old = [j for j in mine if (k, j) in left and known[j] and known[j][0] < last]
        since = {j: [e for e in known[j] if e >= stays[k, j][0]] for j in old}
        after = [
            a[e, j] - ends[k, j] for j in mine if (k, j) in ends for e in range(stays[k, j][-1] + 1, last + 1)
        ]
        total = mean([ends[k, j] - a[last, j] for j in mine if (k, j) in ends])
        clients[k] = {
            "average_accuracy": mean([a[last, j] if known[j] else 0.0 for j in mine]),
            "forgetting_best": mean([max(a[e, j] for e in since[j][:-1]) - a[last, j] for j in old]),
            "forgetting_first": mean([a[since[j][0], j] - a[last, j] for j in old]),
            "forgetting_diagonal": total,
            "backward_transfer": -total,
            "backward_transfer_over_time": mean(after),
            "forward_transfer": mean([w[stays[k, j][0], j] - w[0, j] for j in mine if stays[k, j][0] > 0]),
            "learning_area": mean([learning[k, j] for j in mine]),
            "curve_area": area(rounds, reached[k]),
        }
    return federation, clients


@pytest.mark.parametrize("seed", range(40))
def test_it_equals_plain_loops(seed, tmp_path):
    rounds, accuracy, aware, at, reached = draw(seed)
    rows = [[None if np.isnan(value) else float(value) for value in row] for row in accuracy]
    course = written(tmp_path, rounds, rows, aware.tolist(), at, reached)
    federation, clients = plainly(rounds, accuracy, aware, at, reached)
    assert course.summary == pytest.approx(federation, nan_ok=True)
    found = course.by_client
    assert found.index.tolist() == list(clients)
    for client, expected in clients.items():
        assert found.loc[client].to_dict() == pytest.approx(expected, nan_ok=True)


def _new(path: Path) -> Path:
    path.mkdir()
    return path
