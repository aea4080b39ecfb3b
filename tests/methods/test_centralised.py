"""The centralised baseline: ordinary training, with a federation's budget."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mnemos.client.trainer import fresh_model
from mnemos.client.workload import LocalWorkload, order
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from support import quadratic
from support.play import play
from support.quadratic import near


def experiment(**changes):
    return Experiment.parse(
        {
            "partition": {"name": "dirichlet", "clients": 10, "alpha": 0.1},
            "model": {"name": "mlp", "hidden": [8]},
            "method": "centralised",
            "local": {"batch": 32, "epochs": 2, "lr": 0.1, "optimizer": {"name": "sgd", "momentum": 0.9}},
            "participation": 0.3,
            "rounds": 3,
            "engine": "serial",
            **changes,
        }
    )


def test_it_is_plain_training_on_the_union():
    """Against a loop of torch.optim.SGD over the same batches, its momentum going on from round to round."""
    description = experiment()
    federation, _ = play(description)
    samples = torch.from_numpy(federation.assignment.train(0))
    module = fresh_model(federation.plan, federation.dataset)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    split, (mean,), (std,) = federation.dataset.train, federation.dataset.mean, federation.dataset.std
    for number in (1, 2, 3):
        workload = LocalWorkload(samples, 32, 2, federation.plan.local.steps, 0.0, False)
        places = order(workload, (0, number, 0))
        for some in torch.split(places, workload.epoch * workload.passes)[: workload.total]:
            x = (split.samples[samples[some]].float() - mean) / std
            optimizer.zero_grad()
            F.cross_entropy(module(x), split.labels[samples[some]]).backward()
            optimizer.step()
    expected, _ = federation.layout.gather(module.state_dict())
    torch.testing.assert_close(federation.server.model, expected, rtol=1e-4, atol=1e-5)


def test_it_has_everybodys_samples_once_and_nobody_elses_validation_data():
    central, _ = play(experiment(rounds=1))
    clients = Federation(experiment(method="fedavg"))
    clients.close()
    train = np.concatenate([clients.assignment.train(k) for k in range(10)])
    assert central.assignment.clients == 1
    assert np.array_equal(np.sort(train), central.assignment.train(0))
    assert np.array_equal(np.sort(clients.assignment.union_held_out()), central.assignment.union_held_out())


def test_the_cohorts_budget_is_its_clients_steps():
    """Three clients of a round with two epochs of ⌈n / 32⌉ steps each, by the mean client."""
    federation, _ = play(experiment(rounds=1))
    fedavg = Federation(experiment(method="fedavg"))
    fedavg.close()
    each = 2 * np.ceil(fedavg.assignment.train_sizes() / 32).mean()
    assert federation.plan.local.steps == round(3 * each)
    fixed, _ = play(experiment(rounds=1, local={"steps": 5}))
    assert fixed.plan.local.steps == 15


def test_a_clients_budget_is_its_epochs():
    """Ten epochs a round over the union, by hand: w ← w − η (w − a) with a the mean of all, 10 times."""
    found = quadratic.play(
        {"name": "centralised", "budget": "client"},
        {"epochs": 10, "batch": 8, "lr": 0.5},
        h=[1, 1],
        a=[1.0, 3.0],
        rounds=1,
    )
    assert found.models == near([2 * (1 - 0.5**10)])


def test_it_learns_what_the_federation_does_not():
    _, (*_, central) = play(experiment(rounds=8))
    _, (*_, fedavg) = play(experiment(rounds=8, method="fedavg"))
    assert central.test.accuracy > fedavg.test.accuracy


def test_clients_noise_is_refused():
    with pytest.raises(ConfigError, match="noise belongs to clients"):
        Federation(experiment(partition={"name": "feature-noise", "clients": 4, "noise": 0.1}))
