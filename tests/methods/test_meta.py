"""The meta step: a gradient step on the server's own samples, beside any method."""

import numpy as np
import pytest
import torch

import mnemos
from mnemos.data.load import load
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.federation.population import held_back, partition_samples
from mnemos.methods.meta import Meta
from mnemos.runs.execute import resume
from support.bits import trained_bits
from support.interrupt import Stop
from support.quadratic import digits, near, play


def test_the_step_by_hand():
    """L(x) = ½ (x − 4)²: two steps of η = ¼ take x − 4 to (¾)² (x − 4), from x = 0 to 4 − 4 · 9/16."""
    meta = Meta(samples=1, lr=0.25, steps=2)
    found = meta.step(torch.zeros(1), [lambda x: ((x - 4) ** 2 / 2).sum()])
    assert found.tolist() == near([4 - 4 * 9 / 16])


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedopt"])
def test_after_any_methods_round(method):
    """All samples are alike, L = ½ h (x − a)², so whichever is the server's, it moves the method's model by
    −η_meta h (x − a)."""
    local = {"steps": 2, "lr": 0.1}
    setting = {"h": [2.0], "a": [3.0], "labels": [[0, 0], [0, 0], [0, 0]], "rounds": 1}
    (plain,) = play({"name": method}, local, **setting).models
    (corrected,) = play({"name": method, "meta": {"samples": 2, "lr": 0.05}}, local, **setting).models
    assert corrected == near(plain - 0.05 * 2 * (plain - 3))


def test_the_servers_samples_are_nobody_elses():
    experiment = Experiment.parse({"method": {"name": "fedavg", "meta": {"samples": 100}}})
    dataset = load(experiment.data)
    servers, _ = held_back(experiment, len(dataset.train))
    assert len(np.unique(servers)) == 100
    dealt = partition_samples(experiment, dataset).order
    assert not np.isin(servers, dealt).any()
    assert len(dealt) == len(np.unique(dealt)) == 1300  # 13 of 1338 for each of 100 clients


def test_it_helps_a_federation_that_forgets():
    changes = {
        "partition": {"name": "dirichlet", "clients": 6, "alpha": 0.05},
        "local": {"lr": 0.2, "epochs": 3},
    }
    changes |= {"evaluate": {"every": 5}}

    def accuracy(method):
        federation, _ = digits(method, 5, **changes)
        split = federation.dataset.test
        evaluator = Federation(federation.experiment).groups[0].evaluator
        found = evaluator(federation.server.model, federation.server.buffers, split).accuracy
        evaluator.close()
        return found

    meta = {"samples": 200, "lr": 0.3, "steps": 3}
    assert accuracy({"name": "fedavg", "meta": meta}) > accuracy("fedavg")


def test_it_is_the_same_on_every_engine_and_after_a_resume(tmp_path):
    description = {
        "method": {"name": "fedavg", "meta": {"samples": 50}},
        "model": {"name": "mlp", "norm": "batch"},
        "local": {"steps": 2},
        "partition": {"clients": 5},
        "participation": 0.4,
        "rounds": 2,
    }
    runs = [
        mnemos.run({**description, "engine": engine}, out=tmp_path / engine)
        for engine in ("serial", "threads")
    ]
    with pytest.raises(KeyboardInterrupt):
        mnemos.run({**description, "engine": "serial"}, out=tmp_path / "part", observer=(stop := Stop(1)))
    runs.append(resume(stop.run.path))
    first, second, third = map(trained_bits, runs)
    assert first == second == third


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ({"samples": 0}, "method.meta.samples: found 0"),
        ({"samples": 10**6}, "method.meta.samples: found 1000000; there are"),
        ({"lr": 0.1}, "method.meta.samples"),
    ],
)
def test_wrong_sizes_are_one_sentence(meta, words):
    with pytest.raises(ConfigError, match=words):
        Federation(Experiment.parse({"method": {"name": "fedavg", "meta": meta}}))
