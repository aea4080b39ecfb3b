"""Scores, the evaluator against a plain loop, and accuracies by class and by client."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mnemos.common.rng import generator
from mnemos.data.dataset import Dataset, Split
from mnemos.data.partition import Assignment
from mnemos.data.stream import Setting
from mnemos.data.streams.static import Still
from mnemos.experiment.experiment import load_experiment
from mnemos.federation.federation import Federation
from mnemos.measures import evaluate
from mnemos.measures.accuracy import ClassAccuracy, ClientAccuracy
from mnemos.measures.evaluate import Evaluator
from mnemos.measures.measure import Moment, Record, Scores, measures
from mnemos.models.model import build_model, models
from mnemos.runs.store import Store, read_metrics
from mnemos.vector import Layout
from support.play import play

MODELS = {
    "logistic": {"name": "logistic"},
    "mlp with batch-norm": {"name": "mlp", "hidden": [6], "norm": "batch"},
    "cnn": {"name": "cnn", "width": 0.125, "norm": "batch"},
}


def scores(predicted, labels, losses=None):
    losses = [0.0] * len(labels) if losses is None else losses
    return Scores(
        F.one_hot(torch.tensor(predicted, dtype=torch.int64), 10).float(),
        torch.tensor(labels),
        torch.tensor(losses),
    )


def moment(validation=None, test=None, assignment=None):
    """After round 3; the model plays no part."""
    if assignment is None:
        assignment = Assignment(np.arange(4), np.array([0, 4]), 0.5)
    nothing = torch.zeros(0)
    setting = Setting(assignment, np.zeros(0, np.int64), 10, 3, 0, lambda eligible, round: eligible)
    flow = Still(setting)
    return Moment(3, nothing, nothing, Layout((), ()), flow, assignment.union_held_out(), validation, test)


# --- scores -------------------------------------------------------------------------------------------


def test_scores_by_hand():
    """Three of four right; (0.5 + 1 + 2 + 0.25) / 4 = 0.9375."""
    found = scores([0, 1, 2, 2], [0, 1, 0, 2], [0.5, 1.0, 2.0, 0.25])
    assert found.hits.tolist() == [True, True, False, True]
    assert found.accuracy == 0.75
    assert found.loss == 0.9375


def test_the_mean_loss_is_taken_in_double_precision():
    """2²⁴ ones in single precision stay 2²⁴ when one more is added; here a large loss stands for them."""
    found = scores([0] * 5, [0] * 5, [2.0**24, 1.0, 1.0, 1.0, 1.0])
    assert found.loss == (2**24 + 4) / 5


# --- the evaluator ------------------------------------------------------------------------------------


def dataset(count=37):
    draw = torch.Generator().manual_seed(5)
    samples = torch.randint(256, (count, 3, 16, 16), generator=draw, dtype=torch.uint8)
    split = Split(samples, torch.randint(4, (count,), generator=draw))
    return Dataset("noise", split, split, tuple("abcd"), (120.0, 127.0, 130.0), (70.0, 74.0, 80.0))


def module(name, seed=0):
    return build_model(models.parse(MODELS[name]), (3, 16, 16), 4, generator(seed, "model"))


def vectors(name, seed):
    """A model that isn't the evaluator's own, with statistics that aren't the initial ones."""
    other = module(name, seed)
    with torch.no_grad():
        other.train()(torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(seed)))
    layout = Layout.of(other)
    return other.eval(), *layout.gather(other.state_dict())


def plain(network, data, indices):
    """Sample after sample."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (data.mean, data.std))
    predicted, losses = [], []
    with torch.no_grad():
        for index in indices:
            logits = network(((data.test.samples[index] - mean) / std)[None])
            predicted.append(int(logits.argmax()))
            losses.append(float(F.cross_entropy(logits, data.test.labels[index][None])))
    return predicted, losses


@pytest.fixture
def evaluator(request):
    """An evaluator for a model by its name, closed at the end."""
    made = []

    def make(name, data):
        made.append(Evaluator(module(name), data))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("name", MODELS)
def test_it_equals_a_plain_loop(name, evaluator):
    data = dataset()
    call = evaluator(name, data)
    for seed in (1, 2):  # nothing stays behind of the first model
        network, model, buffers = vectors(name, seed)
        for indices in (None, torch.tensor([5, 0, 36, 5])):
            found = call(model, buffers, data.test, indices)
            chosen = list(range(37)) if indices is None else indices.tolist()
            predicted, losses = plain(network, data, chosen)
            assert found.predicted.tolist() == predicted
            assert found.labels.tolist() == data.test.labels[chosen].tolist()
            assert found.losses.tolist() == pytest.approx(losses, rel=1e-4, abs=1e-5)
            assert found.accuracy == pytest.approx(
                np.mean([p == y for p, y in zip(predicted, found.labels.tolist(), strict=True)])
            )


@pytest.mark.parametrize("name", MODELS)
def test_it_does_not_depend_on_chunks(name, evaluator, monkeypatch):
    data = dataset()
    _, model, buffers = vectors(name, 1)
    call = evaluator(name, data)
    reference = call(model, buffers, data.test)
    for chunk in (1, 7, 36, 37, 1000):
        monkeypatch.setattr(evaluate, "_CHUNK", chunk)
        found = call(model, buffers, data.test)
        assert torch.equal(found.predicted, reference.predicted)
        torch.testing.assert_close(found.losses, reference.losses, rtol=1e-4, atol=1e-5)


def test_it_does_not_depend_on_the_number_of_cores(evaluator, monkeypatch):
    data = dataset()
    _, model, buffers = vectors("cnn", 1)
    monkeypatch.setattr(evaluate, "_CHUNK", 4)
    found = []
    for cores in (1, 2, 5):
        monkeypatch.setenv("MNEMOS_CORES", str(cores))
        found.append(evaluator("cnn", data)(model, buffers, data.test))
    for other in found[1:]:
        assert torch.equal(other.predicted, found[0].predicted)
        assert torch.equal(other.losses, found[0].losses)


def test_it_changes_neither_the_model_nor_the_statistics(evaluator):
    data = dataset()
    _, model, buffers = vectors("cnn", 1)
    before = model.clone(), buffers.clone()
    call = evaluator("cnn", data)
    first = call(model, buffers, data.test)
    second = call(model, buffers, data.test)
    assert torch.equal(model, before[0])
    assert torch.equal(buffers, before[1])
    assert torch.equal(first.losses, second.losses)


# --- accuracy by class --------------------------------------------------------------------------------

BY_CLASS = [(0, 0), (1, 0), (1, 1), (3, 3), (0, 3), (3, 3)]
"""(predicted, label): one of two zeros, the one and two of three threes are right; there are no twos."""


def test_class_accuracy_by_hand():
    found = scores(*(list(column) for column in zip(*BY_CLASS, strict=True)))
    records = list(ClassAccuracy().records(moment(test=found)))
    assert [(record.round, record.name, record.cls) for record in records] == [
        (3, "test_accuracy", 0),
        (3, "test_accuracy", 1),
        (3, "test_accuracy", 3),
    ]
    assert [record.value for record in records] == pytest.approx([1 / 2, 1, 2 / 3])
    assert all(record.client is None and record.task is None for record in records)


def test_class_accuracy_of_classes_that_are_predicted_but_not_there():
    """A class beyond the largest label may be predicted."""
    records = list(ClassAccuracy().records(moment(test=scores([7, 0], [0, 0]))))
    assert records == [Record(3, "test_accuracy", 0.5, cls=0)]


def test_class_accuracy_is_of_the_test_set_where_there_is_one_and_else_of_validation():
    right, wrong = scores([1], [1]), scores([0], [1])
    both = moment(validation=wrong, test=right)
    assert list(ClassAccuracy().records(both)) == [Record(3, "test_accuracy", 1.0, cls=1)]
    only = moment(validation=wrong)
    assert list(ClassAccuracy().records(only)) == [Record(3, "validation_accuracy", 0.0, cls=1)]
    assert list(ClassAccuracy().records(moment())) == []


# --- accuracy by client -------------------------------------------------------------------------------

UNEQUAL = Assignment(np.array([9, 8, 7, 6, 5, 4, 3, 2, 1, 0]), np.array([0, 4, 5, 5, 10]), 0.5)
"""Clients of 4, 1, 0 and 5 samples, of which half (rounded down) are held out: 2, 0, 0 and 2."""


def test_client_accuracy_by_hand():
    """Held out are the last of each: 7, 6 of client 0 and 1, 0 of client 3."""
    assert UNEQUAL.union_held_out().tolist() == [7, 6, 1, 0]
    hits = scores([1, 0, 2, 2], [1, 1, 2, 2])
    records = list(ClientAccuracy().records(moment(validation=hits, assignment=UNEQUAL)))
    assert records == [
        Record(3, "validation_accuracy", 0.5, client=0),
        Record(3, "validation_accuracy", 1.0, client=3),
    ]


def test_client_accuracy_needs_validation():
    assert list(ClientAccuracy().records(moment(test=scores([1], [1]), assignment=UNEQUAL))) == []


def test_nobody_is_recorded_where_nobody_holds_out():
    assignment = Assignment(np.arange(3), np.array([0, 1, 3]), 0.0)
    nothing = Scores(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64), torch.zeros(0))
    assert list(ClientAccuracy().records(moment(validation=nothing, assignment=assignment))) == []


# --- in a federation ----------------------------------------------------------------------------------


def test_measures_of_an_experiment(tiny, tmp_path):
    """Client accuracies, weighted with the number of validation samples, are the overall accuracy.

    The same holds for classes and how often they occur. Some clients are so small that a fifth of their
    samples is none.
    """
    assert {"class-accuracy", "client-accuracy"} <= set(measures.names())
    changes = {
        **tiny,
        "partition": {"name": "quantity", "clients": 12, "alpha": 0.5, "validation": 0.2, "min_samples": 2},
        "rounds": 2,
        "evaluate": {"every": 1, "test_last": 1},
        "measures": ["class-accuracy", "client-accuracy"],
    }
    federation = Federation(load_experiment({}, changes))
    with federation.open() as runner:
        first, second = (federation.advance(runner) for _ in range(2))
    federation.close()

    held = federation.assignment.sizes - federation.assignment.train_sizes()
    assert 0 < np.count_nonzero(held) < 12
    for outcome in (first, second):
        by_client = {
            record.client: record.value
            for record in outcome.records
            if record.name == "validation_accuracy" and record.client is not None
        }
        assert list(by_client) == np.flatnonzero(held).tolist()
        weighted = sum(held[client] * value for client, value in by_client.items()) / held.sum()
        assert weighted == pytest.approx(outcome.validation.accuracy, rel=1e-12)

    labels = {"validation": federation.dataset.train.labels[federation.assignment.union_held_out()]}
    labels["test"] = federation.dataset.test.labels
    for outcome, part in ((first, "validation"), (second, "test")):
        counts = torch.bincount(labels[part]).tolist()
        by_class = {record.cls: record for record in outcome.records if record.cls is not None}
        assert {record.name for record in by_class.values()} == {f"{part}_accuracy"}
        weighted = sum(counts[label] * record.value for label, record in by_class.items()) / sum(counts)
        assert weighted == pytest.approx(getattr(outcome, part).accuracy, rel=1e-6)

    store = Store(tmp_path / "metrics.jsonl")
    store.append([*first.records, *second.records])
    store.close()
    frame = read_metrics(tmp_path / "metrics.jsonl")
    assert len(frame) == len(first.records) + len(second.records)
    overall = frame[frame["client"].isna() & frame["class"].isna() & (frame["name"] == "validation_accuracy")]
    assert overall["value"].tolist() == [first.validation.accuracy, second.validation.accuracy]
    assert frame[frame["class"].notna()].groupby("round").size().tolist() == [10, 10]


def test_measures_run_at_evaluations_only(tiny):
    changes = {**tiny, "measures": ["client-accuracy"], "evaluate": {"every": 2, "test_last": 0}, "rounds": 3}
    _, outcomes = play(load_experiment({}, changes))
    measured = [sum(r.name == "validation_accuracy" for r in outcome.records) for outcome in outcomes]
    assert measured == [0, 13, 13]  # twelve clients and all together
    assert all(math.isfinite(record.value) for outcome in outcomes for record in outcome.records)
