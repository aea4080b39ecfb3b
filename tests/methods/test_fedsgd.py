"""FedSGD is gradient descent on the union of the clients' samples."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mnemos.data.augment import normalise
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.models.model import Classifier
from support.play import play

LR = 0.5


def federation(engine="serial", **changes):
    return Federation(
        Experiment.parse(
            {
                "partition": {"name": "quantity", "clients": 8, "alpha": 0.5, "validation": 0.1},
                "model": {"name": "mlp", "hidden": [8]},
                "method": "fedsgd",
                "local": {"lr": LR},
                "participation": 1.0,
                "rounds": 3,
                "evaluate": {"every": 3, "test_last": 0},
                "engine": engine,
                **changes,
            }
        )
    )


def advance(server, rounds):
    play(server, rounds)
    return server.server.model


@pytest.mark.parametrize("engine", ["serial", "vmap"])
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_rounds_are_steps_of_gradient_descent(engine, participation):
    """x ← x − η Σ nₖ ∇Lₖ / Σ nₖ = x − η ∇ (mean loss over the cohort's samples), by autograd."""
    server = federation(engine, participation=participation)
    dataset, assignment = server.dataset, server.assignment
    module = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU()), 8, 10)
    nn.utils.vector_to_parameters(server.server.model.clone(), module.parameters())
    optimizer = torch.optim.SGD(module.parameters(), LR)
    for number in (1, 2, 3):
        union = torch.cat([torch.from_numpy(assignment.train(k)) for k in server.cohort(number).tolist()])
        x = normalise(dataset.train.samples[union], torch.tensor(dataset.mean), torch.tensor(dataset.std))
        optimizer.zero_grad()
        F.cross_entropy(module(x), dataset.train.labels[union]).backward()
        optimizer.step()
    start = server.server.model
    end = advance(server, 3)
    expected = nn.utils.parameters_to_vector(module.parameters()).detach()
    assert float((end - expected).norm()) < 1e-5 * float((expected - start).norm())


def test_the_batch_plays_no_part():
    small = advance(federation(local={"lr": LR, "batch": 3}), 2)
    assert torch.equal(small, advance(federation(), 2))
    assert torch.equal(small, advance(federation(local={"lr": LR, "steps": 1}), 2))


@pytest.mark.parametrize("field", ["epochs", "steps"])
def test_more_than_one_step_is_refused(field):
    with pytest.raises(ConfigError) as caught:
        federation(local={"lr": LR, field: 3})
    assert str(caught.value) == (
        f"local.{field}: found 3, but fedsgd takes one full-batch step a round; allowed: 1"
    )
