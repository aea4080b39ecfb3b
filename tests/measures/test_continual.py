"""Accuracy by task: by hand, in a federation, at the moments asked for, and without tasks."""

from __future__ import annotations

import math
from contextlib import closing

import numpy as np
import pytest
import torch
from torch import nn

import mnemos
from mnemos.data.partition import Assignment
from mnemos.data.stream import Setting
from mnemos.data.streams.static import Still
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import load_experiment
from mnemos.federation.federation import Federation
from mnemos.measures.continual import Continual, TaskAnswers
from mnemos.measures.measure import Moment, Occasions, Opening, Record, Scores
from mnemos.measures.task_forgetting import TaskForgetting
from mnemos.runs.execute import Silent, resume
from mnemos.vector import Layout
from support.bits import trained_bits

NOTHING = torch.zeros(0)
NAMES = {
    "task_accuracy",
    "task_aware_accuracy",
    "reached_accuracy",
    "discovered_accuracy",
    "all_classes_accuracy",
}

# --- by hand ------------------------------------------------------------------------------------------

TASKS = ([0, 3], [1], [2, 4])
ROWS = [
    # logits of classes 0 to 4, label: the largest, the largest of 0 1 3, the largest of its own task
    ([5, 1, 9, 3, 0], 0),  # 2, 0, 0
    ([1, 2, 0, 3, 9], 3),  # 4, 3, 3
    ([2, 7, 0, 1, 0], 3),  # 1, 1, 0
    ([0, 4, 1, 6, 0], 1),  # 3, 3, 1
    ([0, 8, 1, 6, 9], 1),  # 4, 1, 1
    ([9, 0, 3, 0, 5], 2),  # 0, 0, 4
    ([0, 1, 3, 2, 0], 2),  # 2, 3, 2
    ([0, 1, 9, 3, 5], 4),  # 2, 3, 2
]
SCORES = Scores(
    torch.tensor([logits for logits, _ in ROWS], dtype=torch.float32),
    torch.tensor([label for _, label in ROWS]),
    torch.zeros(len(ROWS)),
)


class Told(Still):
    """Two clients, at tasks 0 and 1 in round 1; client 0 at task 1 from round 2 on."""

    tasks = tuple(np.array(classes) for classes in TASKS)

    def task(self, client, round):
        return 1 if client or round > 1 else 0

    def reached(self, client, round):
        return np.array([1] if client else [0, 1][: min(round, 2)])

    def discovered(self, round):
        return np.arange(min(round, 2))


def flow(tasks: bool = True):
    assignment = Assignment(np.arange(8), np.array([0, 4, 8]), 0.5)
    setting = Setting(assignment, SCORES.labels.numpy(), 5, 9, 0, lambda eligible, round: np.arange(2))
    return (Told if tasks else Still)(setting)


def moment(round=2, test=SCORES, validation=None):
    return Moment(round, NOTHING, NOTHING, Layout((), ()), flow(), np.zeros(0, int), validation, test, 9)


def found(records: list[Record], name: str) -> dict:
    """Values by client (or model) and task."""
    whose = {(r.client if r.model is None else r.model, r.task): r.value for r in records if r.name == name}
    assert len(whose) == sum(r.name == name for r in records)
    return whose


def test_every_number_by_hand():
    """Tasks 0 and 1 are discovered: classes 0, 3 and 1.

    Right among these: samples 0 and 1 of task 0's three, sample 4 of task 1's two. Among their own tasks'
    classes: samples 0 and 1; both; 6 alone, as 5 is taken for 4, and 7 for 2.
    """
    records = list(Continual().records(moment()))
    assert {record.round for record in records} == {2}
    assert {record.name for record in records} == NAMES
    assert found(records, "task_accuracy") == pytest.approx({(None, 0): 2 / 3, (None, 1): 1 / 2})
    assert found(records, "task_aware_accuracy") == pytest.approx(
        {(None, 0): 2 / 3, (None, 1): 1, (None, 2): 1 / 3}
    )
    assert found(records, "discovered_accuracy") == pytest.approx({(None, None): 3 / 5})
    assert found(records, "all_classes_accuracy") == pytest.approx({(None, None): 3 / 8})
    assert found(records, "reached_accuracy") == pytest.approx({(0, 1): 3 / 5, (1, 1): 1 / 2})


def test_what_is_discovered_later_is_not_an_answer_yet():
    """In round 1, classes 0 and 3 alone are answers: samples 0 and 1 are right, and 2 is taken for 0."""
    records = list(Continual().records(moment(1)))
    assert found(records, "task_accuracy") == pytest.approx({(None, 0): 2 / 3})
    assert found(records, "reached_accuracy") == pytest.approx({(0, 0): 2 / 3, (1, 1): 0})


def test_the_first_model_has_discovered_nothing():
    records = list(Continual().records(moment(0)))
    assert {(record.round, record.name) for record in records} == {(0, "task_aware_accuracy")}
    assert len(records) == 3


def test_only_the_samples_asked_for_count():
    assert list(Continual().records(moment(test=None, validation=SCORES))) == []
    other = list(Continual(on="validation").records(moment(test=None, validation=SCORES)))
    assert other == list(Continual().records(moment()))
    assert list(Continual(on="validation").records(moment())) == []


def test_a_task_without_a_sample_has_no_number():
    few = Scores(SCORES.logits[:3], SCORES.labels[:3], SCORES.losses[:3])
    records = list(Continual().records(moment(test=few)))
    assert found(records, "task_accuracy") == pytest.approx({(None, 0): 2 / 3})
    assert found(records, "reached_accuracy") == pytest.approx({(0, 1): 2 / 3})  # nothing of client 1's


def test_a_class_of_no_task_is_never_an_answer():
    answers = TaskAnswers(SCORES, [np.array([0, 3])], [0])
    assert answers.sizes.tolist() == [3]
    assert answers.right.tolist() == answers.aware.tolist() == [2]


# --- whose update made it forget ----------------------------------------------------------------------


def table(*predicted: int) -> torch.Tensor:
    """A model that takes every sample of class c for the c-th of these."""
    return torch.nn.functional.one_hot(torch.tensor(predicted), 5).float().flatten()


def scores_of(model: torch.Tensor, labels: torch.Tensor) -> Scores:
    logits = torch.nn.functional.one_hot(labels, 5).float() @ model.view(5, 5)
    return Scores(logits, labels, torch.zeros(len(labels)))


def opening(round=3, cohort=(0, 1), model=None):
    labels = SCORES.labels
    return Opening(
        round,
        9,
        table(0, 1, 2, 3, 4) if model is None else model,
        NOTHING,
        Layout((), ()),
        flow(),
        np.array(cohort),
        lambda model, buffers, indices: scores_of(model, labels[indices]),
        lambda model, buffers: scores_of(model, labels),
    )


def watched(measure, models, **options):
    watch = measure.watch(opening(**options))
    assert watch is not None
    for client, model in models.items():
        watch.see(client, model, NOTHING)
    return list(watch.records())


AFTER = {0: table(0, 1, 0, 0, 0), 1: table(1, 1, 1, 3, 1)}
"""Client 0 forgets class 3: one of task 0's three samples is left. Client 1 forgets class 0: two are."""


def test_drops_by_hand():
    """Both clients are at task 1, which they keep. D = (2/3, 0) of client 0 and (1/3, 0) of client 1.

    Caused, without the own task: 2/3 and 1/3. Of task 0: 1/2; of task 1 nobody but those at it.
    """
    records = watched(TaskForgetting(), AFTER, round=9)
    assert {record.round for record in records} == {9}
    assert found(records, "before_accuracy") == {(None, 0): 1, (None, 1): 1}
    assert found(records, "after_accuracy") == pytest.approx(
        {(0, 0): 1 / 3, (0, 1): 1, (1, 0): 2 / 3, (1, 1): 1}
    )
    assert found(records, "task_forgetting_caused") == pytest.approx({(0, 1): 2 / 3, (1, 1): 1 / 3})
    assert found(records, "task_forgetting") == pytest.approx({(None, 0): 1 / 2, (None, None): 1 / 2})


def test_on_the_cohorts_validation_samples():
    """Client 0 holds out labels 3 and 1, client 1 holds out 2 and 4, of no discovered task."""
    records = watched(TaskForgetting(on="validation"), AFTER, round=9)
    assert found(records, "after_accuracy") == {(0, 0): 0, (0, 1): 1, (1, 0): 1, (1, 1): 1}
    assert found(records, "task_forgetting") == {(None, 0): 1 / 2, (None, None): 1 / 2}


def test_in_the_first_round_there_is_nothing_but_ones_own_task():
    """Task 0 alone is discovered; client 0 is at it, client 1 at task 1 although it wasn't selected."""
    records = watched(TaskForgetting(), {0: AFTER[0]}, round=1, cohort=(0,))
    assert {record.name for record in records} == {"before_accuracy", "after_accuracy"}


def test_when_it_is_due():
    measure = TaskForgetting(every=4)
    assert [n for n in range(1, 10) if measure.watch(opening(n)) is not None] == [1, 4, 8, 9]
    assert watched(measure, {}, round=4) == []


# --- in a federation ----------------------------------------------------------------------------------


@pytest.fixture
def streamed(tiny):
    """Five tasks of two digits, in 20 rounds, tested in every fourth."""
    return {
        **tiny,
        "stream": {"name": "tasks", "tasks": 5, "advance": "clock"},
        "rounds": 20,
        "evaluate": {"every": 20, "test_every": 4},
        "measures": [{"name": "continual"}, {"name": "task-forgetting", "every": 10}, "class-accuracy"],
        "local": {"lr": 0.2},
    }


def test_a_run_against_plain_loops(streamed, tmp_path):
    """The last evaluation from the trained model; the records' rounds; the summary is there."""
    run = mnemos.run(streamed, out=tmp_path)
    metrics = run.metrics
    with closing(Federation(run.experiment)) as federation:
        flow, test = federation.flow, federation.dataset.test
        inputs = (test.samples.float() - torch.tensor(federation.dataset.mean)) / torch.tensor(
            federation.dataset.std
        )
        with torch.no_grad():
            logits = run.model()(inputs).numpy()
        labels = test.labels.numpy()

        def accuracy(tasks, outputs):
            allowed = np.concatenate([flow.tasks[task] for task in outputs])
            mine = np.isin(labels, np.concatenate([flow.tasks[task] for task in tasks]))
            return float((allowed[logits[mine][:, allowed].argmax(1)] == labels[mine]).mean())

        def value(name, **by):
            rows = metrics[(metrics["name"] == name) & (metrics["round"] == 20)]
            for column in ("client", "task", "class"):
                rows = rows[rows[column] == by[column] if column in by else rows[column].isna()]
            (one,) = rows["value"]
            return one

        discovered = flow.discovered(20).tolist()
        assert discovered == [0, 1, 2, 3, 4]
        for task in discovered:
            assert value("task_accuracy", task=task) == pytest.approx(accuracy([task], discovered))
            assert value("task_aware_accuracy", task=task) == pytest.approx(accuracy([task], [task]))
        for client in range(12):
            at, reached = flow.task(client, 20), flow.reached(client, 20).tolist()
            expected = accuracy(reached, discovered)
            assert value("reached_accuracy", client=client, task=at) == pytest.approx(expected)
        for number, expected in ((4, flow.discovered(4)), (8, flow.discovered(8))):
            rows = metrics[(metrics["name"] == "task_accuracy") & (metrics["round"] == number)]
            assert rows["task"].tolist() == expected.tolist()
    assert value("all_classes_accuracy") == value("discovered_accuracy") == value("test_accuracy")
    rounds = {name: sorted(set(metrics[metrics["name"] == name]["round"])) for name in NAMES}
    assert rounds["task_aware_accuracy"] == [0, 4, 8, 12, 16, 20]
    assert all(rounds[name] == [4, 8, 12, 16, 20] for name in NAMES - {"task_aware_accuracy"})
    assert sorted(set(metrics[metrics["name"] == "task_forgetting_caused"]["round"])) == [1, 10, 20]
    course = run.continual()
    assert course.rounds.tolist() == [4, 8, 12, 16, 20]
    assert course.by_client.index.tolist() == list(range(12))
    assert all(math.isfinite(number) for name, number in course.summary.items() if name != "forward_transfer")


def test_what_the_watch_sees_is_what_came_back(streamed):
    """In round 1, with plain evaluations of each client's model."""
    federation, updates = Federation(load_experiment({}, streamed)), []
    with closing(federation), federation.open() as runner:
        run, before = runner.run, federation.server

        def keeping(tasks):
            for update in run(tasks):
                updates.append(update)
                yield update

        runner.run = keeping
        records = federation.advance(runner).records
        flow, evaluator = federation.flow, federation.groups[0].evaluator
        discovered = flow.discovered(1)
        assert len(discovered) > 1
        after = found([r for r in records if r.model is not None], "after_accuracy")
        assert set(after) == {(update.client, task) for update in updates for task in discovered}
        for update in updates:
            scores = evaluator(before.model + update.delta, update.buffers, federation.dataset.test)
            answers = TaskAnswers(scores, flow.tasks, discovered)
            expected = dict(answers.shares(answers.right))
            for task in discovered.tolist():
                assert after[update.client, task] == pytest.approx(expected[task])


class Stop(Silent):
    """Interrupts a run after some rounds."""

    def __init__(self, after):
        super().__init__()
        self.after = after

    def round(self, outcome):
        if outcome.round == self.after:
            raise KeyboardInterrupt


def test_a_resumed_run_has_the_same_metrics(streamed, tmp_path):
    whole = mnemos.run(streamed, out=tmp_path / "whole")
    stop = Stop(10)
    with pytest.raises(KeyboardInterrupt):
        mnemos.run(streamed, out=tmp_path / "part", observer=stop)
    resumed = resume(stop.run.path)
    assert resumed.file("metrics.jsonl").read_bytes() == whole.file("metrics.jsonl").read_bytes()


def test_measuring_changes_nothing_else(streamed, tmp_path):
    measured = mnemos.run(streamed, out=tmp_path)
    plain = mnemos.run({**streamed, "measures": ["class-accuracy"]}, out=tmp_path)
    assert trained_bits(measured) == trained_bits(plain)
    about_tasks = measured.metrics["task"].notna() | measured.metrics["name"].isin(
        NAMES | {"task_forgetting"}
    )
    assert measured.metrics[~about_tasks].reset_index(drop=True).equals(plain.metrics)


# --- wrong --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"stream": "static"},
            r"^measures\.continual: it is about tasks, and the stream has none; stream=tasks has$",
        ),
        (
            {"stream": "static", "measures": ["task-forgetting"]},
            r"^measures\.task-forgetting: it is about tasks, and the stream has none",
        ),
        (
            {"evaluate": {"test_every": 0}},
            r"^measures\.continual: .* test set, and there would be 1; evaluate\.test_every=10 asks",
        ),
        (
            {"measures": [{"name": "continual", "on": "validation"}]},
            r"^measures\.continual: .* validation data, and there would be 1; raise partition\.validation",
        ),
        (
            {"partition.validation": 0, "measures": [{"name": "task-forgetting", "on": "validation"}]},
            r"^measures\.task-forgetting: no client holds validation data",
        ),
        ({"measures": [{"name": "continual", "on": "train"}]}, r"on: .*'test' or 'validation'"),
        ({"measures": [{"name": "task-forgetting", "every": 0}]}, r"every"),
        ({"evaluate.test_every": -1}, r"^evaluate\.test_every"),
        (
            {"clock": "fedbuff", "measures": ["task-forgetting"]},
            r"^measures\.task-forgetting: found a measure which needs clients that are sent the same",
        ),
        (
            {
                "model": {"name": "mixed", "of": [{"model": "mlp"}, {"model": "logistic"}]},
                "measures": ["task-forgetting"],
            },
            r"^measures\.task-forgetting: forgetting compares clients that were sent the same model",
        ),
    ],
)
def test_what_it_refuses(streamed, changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Federation(load_experiment(streamed, changes)).close()


def test_it_needs_a_test_set():
    """Which data sets may lack."""
    with pytest.raises(ConfigError, match=r"^there is no test set; on=validation takes clients' validation"):
        TaskForgetting().check(Occasions(flow(), 3, 0, 0, Layout.of(nn.Linear(1, 1))))
    TaskForgetting(on="validation").check(Occasions(flow(), 3, 0, 0, Layout.of(nn.Linear(1, 1))))


def test_testing_every_few_rounds(tiny, tmp_path):
    """Every third of 7 rounds, and the last; with test_last=0, the last of them is the result."""
    evaluate = {"every": 7, "test_last": 1, "test_every": 3}
    run = mnemos.run({**tiny, "rounds": 7, "evaluate": evaluate}, out=tmp_path)
    rows = run.metrics[run.metrics["name"] == "test_accuracy"].set_index("round")["value"]
    assert rows.index.tolist() == [3, 6, 7]
    assert run.accuracy == rows[7]
    run = mnemos.run({**tiny, "rounds": 7, "evaluate": {**evaluate, "test_last": 0}}, out=tmp_path)
    rows = run.metrics[run.metrics["name"] == "test_accuracy"].set_index("round")["value"]
    assert (rows.index.tolist(), run.accuracy) == ([3, 6], rows[6])
