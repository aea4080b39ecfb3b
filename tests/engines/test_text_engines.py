"""Texts on every engine: one after another, on threads and under vmap, the same clients end the same."""

import pytest
import torch

from mnemos.errors import MnemosError
from mnemos.experiment.experiment import Experiment
from mnemos.methods.method import methods
from mnemos.objectives.objective import objectives
from support.play import play

MODELS = {
    "text": {"name": "text", "hidden": [8]},
    "text-cnn": {"name": "text-cnn", "width": 8, "filters": 8},
    "mixed": {"name": "mixed", "of": [{"model": "text"}, {"model": "text-cnn"}], "exchange": {"samples": 20}},
}


def experiment(**changes):
    """Six clients of unequal sizes, four in each round."""
    return Experiment.parse(
        {
            "data": {"name": "messages", "writers": 6, "each": 60},
            "partition": {"name": "quantity", "clients": 6, "min_samples": 9},
            "model": "text",
            "local": {"epochs": 2, "batch": 16, "lr": 0.5},
            "method": {"name": "fedavg", "loss": "wsm"},
            "participation": 0.67,
            "rounds": 2,
            "evaluate": {"every": 1},
            "engine": "serial",
            **changes,
        }
    )


def outcome(**changes):
    federation, outcomes = play(experiment(**changes), 2)
    return federation.server.model, outcomes[-1].records


@pytest.mark.parametrize("model", MODELS)
def test_engines_agree(model):
    model = MODELS[model]
    serial, records = outcome(model=model)
    threads, same = outcome(model=model, engine={"name": "threads", "workers": 2})
    assert torch.equal(threads, serial)
    assert same == records
    vmap, _ = outcome(model=model, engine={"name": "vmap", "chunk": 3})
    assert vmap.tolist() == pytest.approx(serial.tolist(), rel=1e-4, abs=1e-5)


def test_dropout_and_several_passes_are_the_same_on_threads():
    model = {"name": "text", "hidden": [8], "dropout": 0.5}
    serial, _ = outcome(model=model)
    assert torch.equal(outcome(model=model, engine="threads")[0], serial)


REFUSED = {
    "fedreg": "which changes the numbers of samples",
    "fedspace": "rotations need square images",
    "pass": "rotations need square images",
}
"""The methods that need images, or numbers, and why."""
LOCAL = {"fedsgd": {"lr": 0.5}, "uga": {"epochs": 2}}
"""Local training of the methods that have their own."""
METHODS = [kind.name for kind in methods if kind.__module__.startswith("mnemos.")]


@pytest.mark.parametrize("method", [name for name in METHODS if name not in REFUSED])
def test_a_method_trains_on_texts(method):
    _, outcomes = play(experiment(method=method, rounds=1, local=LOCAL.get(method, {})), 1)
    assert outcomes[0].records


@pytest.mark.parametrize("method", REFUSED)
def test_a_method_says_why_it_does_not_train_on_texts(method):
    with pytest.raises(MnemosError, match=REFUSED[method]):
        play(experiment(method=method, rounds=1), 1)


@pytest.mark.parametrize("loss", [kind.name for kind in objectives if kind.__module__.startswith("mnemos.")])
def test_every_loss_trains_on_texts(loss):
    _, outcomes = play(experiment(method={"name": "fedavg", "loss": loss}, rounds=1), 1)
    assert outcomes[0].records


def test_backdoors_mark_texts_by_the_rarest_word():
    """The mark is there in training and at the test: its success is a share."""
    changes = {"faults": [{"name": "backdoor", "share": 0.5}], "measures": ["backdoor"], "rounds": 1}
    _, outcomes = play(experiment(**changes), 1)
    (record,) = [record for record in outcomes[0].records if record.name == "backdoor_success"]
    assert 0 <= record.value <= 1
