"""FedCurv against numbers worked out by hand."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mnemos.data.augment import normalise
from mnemos.methods.exchange import Batch, Client
from mnemos.methods.presets.fedcurv import Curvature
from mnemos.models.functional import Functional
from mnemos.models.model import Classifier
from mnemos.objectives.ce import CrossEntropy
from support import quadratic
from support.bernoulli import bernoulli

FISHER, ANCHOR, ROUND = "fedcurv.fisher", "fedcurv.anchor", "fedcurv.round"


def digits(method, rounds, participation=0.5):
    local = {"epochs": 1, "batch": 32, "lr": 0.1}
    return quadratic.digits(method, rounds, participation=participation, local=local)[0]


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


@pytest.mark.parametrize("include_self", [False, True])
def test_two_rounds_by_hand(include_self):
    """Logits w = (u, −u) on a constant input 1: the probability of class 0 is σ(2u).

    The gradient of the cross-entropy is (σ − 1)(1, −1) for class 0 and σ (1, −1) for class 1, so all models
    stay of the form (u, −u), and a client's Fisher values are its mean of (1 − σ)² or of σ².

    Round 1, from u = 0 with η = 1: u₀ = ½, u₁ = −½, the mean by samples is u = ¾ · ½ − ¼ · ½ = ¼.
    F₀ = (1 − σ(1))² and F₁ = σ(−1)² are the same f; Σ F = 2f and Σ F u = f/2 − f/2 = 0.

    Round 2, s = σ(½), with the term's gradient 2λ (u ΣF − ΣFu) over the other client alone:
    client 0: 2λ (f/4 + f/2) = 3λf/2, u₀ = ¼ − (s − 1) − 3λf/2;
    client 1: 2λ (f/4 − f/2) = −λf/2, u₁ = ¼ − s + λf/2.
    With one's own it is 2λ (2f · ¼ − 0) = λf for both.
    """
    strength = 2.0
    server = bernoulli({"name": "fedcurv", "strength": strength, "include_self": include_self})
    f, s = (1 - sigmoid(1.0)) ** 2, sigmoid(0.5)
    with server.open() as runner:
        server.advance(runner)
        assert server.server.model.tolist() == pytest.approx([0.25, -0.25])
        assert server.server.state[FISHER].tolist() == pytest.approx([2 * f, 2 * f])
        assert server.server.state[ANCHOR].tolist() == pytest.approx([0.0, 0.0], abs=1e-7)
        assert server.client_states[0][ANCHOR].tolist() == pytest.approx([f / 2, -f / 2])
        server.advance(runner)
    pull = (strength * f, strength * f) if include_self else (1.5 * strength * f, -0.5 * strength * f)
    u0, u1 = 0.25 - (s - 1) - pull[0], 0.25 - s - pull[1]
    u = 0.75 * u0 + 0.25 * u1
    assert server.server.model.tolist() == pytest.approx([u, -u], rel=1e-5)
    server.close()


@pytest.mark.parametrize(
    ("own_round", "include_self", "expected"),
    [(4.0, False, [12.0, 20.0]), (3.0, False, [30.0, 34.0]), (4.0, True, [30.0, 34.0])],
)
def test_the_term_by_hand(own_round, include_self, expected):
    """λ = ½, so the term adds w ⊙ ΣF − ΣFw; w = (2, 3), ΣF = (7, 10), ΣFw = (−6, 6), g = (10, 10).

    All: (14 + 6, 30 − 6) = (20, 24). The client's own F = (1, 5), Fw = (−16, 1) leave, if it took part in the
    round the sums are of, (6, 5) and (10, 5): (12 − 10, 15 − 5) = (2, 10).
    If it didn't, the sums hold nothing of its own, whatever it remembers.
    """
    vector = torch.tensor
    client = Client(
        vector([0.0, 0.0]),
        {FISHER: vector([7.0, 10.0]), ANCHOR: vector([-6.0, 6.0]), ROUND: vector(4.0)},
        {FISHER: vector([1.0, 5.0]), ANCHOR: vector([-16.0, 1.0]), ROUND: vector(own_round)},
        *[vector([1.0, 1.0])] * 3,
    )
    term = Curvature(strength=0.5, include_self=include_self)
    found = term.correct(vector([10.0, 10.0]), vector([2.0, 3.0]), client)
    assert found.tolist() == expected


def test_only_the_last_rounds_clients_are_summed():
    """With half of the clients a round, the sums are over this round's clients and no one else's."""
    federation = digits({"name": "fedcurv", "strength": 0.1}, rounds=3)
    cohort = federation.cohort(3).tolist()
    states = [federation.client_states[client] for client in cohort]
    assert all(float(state[ROUND]) == 3.0 for state in states)
    for name in (FISHER, ANCHOR):
        torch.testing.assert_close(federation.server.state[name], sum(state[name] for state in states))
    others = set(federation.cohort(1).tolist() + federation.cohort(2).tolist()) - set(cohort)
    assert others
    assert all(float(federation.client_states[client][ROUND]) < 3.0 for client in others)


def test_fisher_is_the_mean_of_squared_gradients_of_single_samples():
    """Against autograd, sample by sample, at the client's trained model."""
    federation = digits({"name": "fedcurv"}, rounds=1)
    with federation.open() as runner:
        (update,) = runner.run([next(iter(federation.requests(2, runner)))])
    end = federation.server.model + update.delta
    dataset = federation.dataset
    indices = torch.from_numpy(federation.assignment.train(update.client))
    x = normalise(dataset.train.samples[indices], torch.tensor(dataset.mean), torch.tensor(dataset.std))
    module = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU()), 8, 10)
    nn.utils.vector_to_parameters(end, module.parameters())
    squares = torch.zeros_like(end)
    for sample, label in zip(x, dataset.train.labels[indices], strict=True):
        module.zero_grad()
        F.cross_entropy(module(sample[None]), label[None]).backward()
        squares += nn.utils.parameters_to_vector([p.grad for p in module.parameters()]).square()
    expected = squares / len(indices)
    torch.testing.assert_close(update.change[FISHER], expected, rtol=1e-4, atol=1e-9)
    torch.testing.assert_close(update.change[ANCHOR], expected * end, rtol=1e-4, atol=1e-9)


def test_samples_that_only_fill_a_batch_up_add_nothing():
    """w = (1, −1), x = (2, 7), classes 0 and 1: p = σ(2 · 2), and the second sample is masked.

    The first one's gradient is 2 (p − 1, 1 − p); squares of it and nothing else are summed.
    """
    functional = Functional(nn.Linear(1, 2, bias=False))
    w = torch.tensor([1.0, -1.0])
    batch = Batch(torch.tensor([[2.0], [7.0]]), torch.tensor([0, 1]), torch.tensor([1.0, 0.0]))
    client = Client(w, {}, {}, torch.ones(2), torch.ones(2), torch.ones(2))
    found = Curvature().data_pass(w, functional.net(w, torch.zeros(0)), CrossEntropy(), batch, client)
    expected = 4 * (1 - sigmoid(4.0)) ** 2
    assert found[FISHER].tolist() == pytest.approx([expected, expected], rel=1e-4)


def test_the_first_round_is_fedavg_and_the_second_is_not():
    strong = {"name": "fedcurv", "strength": 1.0}
    assert torch.equal(digits(strong, 1).server.model, digits("fedavg", 1).server.model)
    assert not torch.equal(digits(strong, 2).server.model, digits("fedavg", 2).server.model)


def test_without_strength_it_is_fedavg():
    found = digits({"name": "fedcurv", "strength": 0.0}, 3).server.model
    assert torch.equal(found, digits("fedavg", 3).server.model)
