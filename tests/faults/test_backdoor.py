"""A mark on samples, clients that teach the model to answer it, and how well that works."""

from dataclasses import replace

import pytest
import torch

from mnemos.client.messages import TrainRequest, reply_from_bytes
from mnemos.client.packing import pack, unpack
from mnemos.client.trainer import Trainer, fresh_model, train_message
from mnemos.data.dataset import Dataset, Split
from mnemos.data.trigger import Mark, Trigger, mark_value
from mnemos.errors import ConfigError, MnemosError
from mnemos.faults.backdoor import Backdoor
from mnemos.federation.federation import Federation
from mnemos.measures.evaluate import Evaluator
from mnemos.methods.exchange import TrainReply
from support.interrupt import assert_repeatable
from support.play import play, small


def experiment(**changes):
    method = {"name": "fedavg", "weighting": "uniform"}
    return small(
        **{"method": method, "rounds": 4, "faults": [{"name": "backdoor", "share": 0.25}], **changes}
    )


def images(*labels):
    samples = torch.arange(len(labels) * 9, dtype=torch.uint8).view(-1, 1, 3, 3)
    return Split(samples, torch.tensor(labels))


# the mark


def test_an_image_is_marked_in_its_corner():
    """The largest pixel is 26, and the target class 1 isn't marked: two of three samples are left."""
    split = images(0, 1, 2)
    data = Dataset("d", split, split, ("a", "b", "c"), (10.0,), (2.0,))
    found = Mark(target=1, size=2).on(data, split)
    assert found.labels.tolist() == [0, 2]
    assert found.samples[0, 0].tolist() == [[0, 1, 2], [3, 26, 26], [6, 26, 26]]
    assert split.samples[0, 0].tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]  # left alone
    assert mark_value(data).tolist() == [(26 - 10) / 2]


def test_a_vector_is_marked_in_its_last_features():
    """Three standard deviations above the mean: 1 + 3 · 2 and 5 + 3 · 4; 3 when it is scaled."""
    split = Split(torch.zeros(2, 3), torch.tensor([0, 1]))
    data = Dataset("d", split, split, ("a", "b"), (0.0, 1.0, 5.0), (1.0, 2.0, 4.0))
    assert Mark(target=0, size=2).on(data, split).samples.tolist() == [[0.0, 7.0, 17.0]]
    assert mark_value(data).tolist() == [3.0, 3.0, 3.0]


# training


def tasks(description):
    federation = Federation(description)
    with federation.open() as runner:
        found = list(federation.requests(1, runner))
        plan = runner.plan
    federation.close()
    return found, plan, federation.dataset


@pytest.mark.parametrize("local", [{"steps": 2}, {"steps": None, "epochs": 2}])
def test_marked_samples_are_those_of_a_data_set_that_has_them(local):
    """If all are marked, the update is that of the same samples, marked and labelled as the target."""
    faults = [{"name": "backdoor", "share": 0.25, "poisoned": 1.0, "target": 3}]
    found, plan, data = tasks(experiment(faults=faults, local={"batch": 16, "lr": 0.1, **local}))
    task = next(task for task in found if task.trigger is not None)
    update = Trainer(plan, data)(task)
    samples = data.train.samples.clone()
    samples[..., -3:, -3:] = 16
    marked = replace(
        data, train=replace(data.train, samples=samples, labels=torch.full_like(data.train.labels, 3))
    )
    expected = Trainer(plan, marked)(replace(task, trigger=None))
    torch.testing.assert_close(update.delta, expected.delta)
    assert update.loss == pytest.approx(expected.loss)
    assert not torch.equal(Trainer(plan, data)(replace(task, trigger=None)).delta, update.delta)


@pytest.mark.parametrize(
    "changes", [{}, {"method": "precision"}, {"partition": {"name": "dirichlet", "clients": 8}}]
)
def test_it_is_learnt_alike_by_all_trainers(changes):
    """One by one, as one batched computation, and from a message; beside clients who mark nothing."""
    serial, batched = (play(experiment(engine=engine, **changes), 1)[0] for engine in ("serial", "vmap"))
    torch.testing.assert_close(serial.server.model, batched.server.model, rtol=1e-4, atol=1e-6)
    found, plan, data = tasks(experiment(**changes))
    bad = set(Backdoor(share=0.25).clients(8, 0).tolist())
    assert {task.client for task in found if task.trigger is not None} == bad
    assert all(TrainRequest.from_bytes(task.to_bytes()).trigger == task.trigger for task in found)
    task = next(task for task in found if task.client in bad)
    assert task.trigger == Trigger(target=0, size=3, poisoned=0.5)
    message = reply_from_bytes(train_message(task.to_bytes()))
    assert torch.equal(message.delta, Trainer(plan, data)(task).delta)


@pytest.mark.parametrize("trigger", ["mark", 3, {"target": -1}, {"poisoned": 2}, {"colour": "red"}])
def test_a_task_with_a_mark_that_is_none_is_refused(trigger):
    (task, *_), _, _ = tasks(experiment())
    header, tensors, states = unpack(task.to_bytes())
    with pytest.raises(MnemosError):
        TrainRequest.from_bytes(pack(tensors, states, {**header, "trigger": trigger}))


def test_it_is_the_same_on_every_engine_and_after_a_resume(tmp_path):
    assert_repeatable(experiment(participation=0.5, measures=["backdoor"]), tmp_path)


# what is sent, and what comes of it


def test_model_replacement_undoes_the_mean():
    """Two of eight send 8 / 2 times what they have learnt; the mean has all of it, beside 6 / 8 of the
    others' mean."""

    def one(client):
        return TrainReply(client, 1, 10, 7, 0.5, torch.tensor([1.0, -2.0]), torch.zeros(0), {}, {})

    own, honest = [one(0), one(1)], [one(client) for client in range(2, 8)]
    assert [sent.delta.tolist() for sent in Backdoor().collude(own, honest, {})] == [[4.0, -8.0]] * 2
    assert [sent.delta.tolist() for sent in Backdoor(boost=3).collude(own, honest, {})] == [[3.0, -6.0]] * 2


def success(outcomes):
    return [r.value for outcome in outcomes for r in outcome.records if r.name == "backdoor_success"]


def test_the_success_rate_by_hand():
    """By definition, from the model's answers to the marked test samples of other classes."""
    description = experiment(measures=["backdoor"], rounds=2, evaluate={"test_last": 1})
    federation, outcomes = play(description)
    data = federation.dataset
    samples = data.test.samples.clone()
    samples[..., -3:, -3:] = 16
    split = replace(data.test, samples=samples)
    evaluator = Evaluator(fresh_model(federation.plan, data), data)
    scores = evaluator(federation.server.model, federation.server.buffers, split)
    evaluator.close()
    others = data.test.labels != 0
    expected = float((scores.predicted[others] == 0).double().mean())
    assert success(outcomes) == [expected]


def test_a_backdoor_works_and_a_rule_closes_it():
    """Of the mean's model nearly all marked samples are taken for class 0; of the median's few."""
    faults = [{"name": "backdoor", "share": 0.25}]

    def rate(rule, faults):
        method = {"name": "fedavg", "weighting": "uniform", "rule": rule}
        local = {"epochs": 2, "batch": 16, "lr": 0.1}
        return success(
            play(experiment(method=method, faults=faults, measures=["backdoor"], local=local, rounds=8))[1]
        )[-1]

    assert rate("mean", faults) > 0.9
    assert rate("median", faults) < 0.5
    assert rate("mean", []) < 0.3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"faults": [{"name": "backdoor", "target": 10}]}, "faults.0.target: found 10; allowed: 0 to 9"),
        (
            {"measures": [{"name": "backdoor", "target": 10}], "faults": []},
            "measures.backdoor.target: found 10",
        ),
        ({"measures": [{"name": "backdoor", "size": 2}]}, "measures.backdoor: target and size differ"),
        (
            {"measures": ["backdoor"], "evaluate": {"test_last": 0}},
            "measures.backdoor: it marks test",
        ),
        ({"clock": {"name": "fedbuff", "buffer": 4}}, "faults: found clients that know the updates"),
    ],
)
def test_what_cannot_be_is_one_sentence(changes, words):
    with pytest.raises(ConfigError, match=words):
        Federation(experiment(**changes))
