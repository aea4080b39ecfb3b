"""Gradient-masked averaging against numbers worked out by hand."""

import math

import pytest
import torch
from torch import nn

from mnemos.methods.exchange import Server, TrainReply
from mnemos.methods.presets.gma import Gma
from mnemos.vector import Layout
from support import quadratic
from support.bernoulli import bernoulli
from support.play import play


def update(client, samples, *delta):
    return TrainReply(client, 1, samples, 1, 0.0, torch.tensor(delta), torch.zeros(0), {}, {})


def step(options, weighting="samples"):
    """A round of two clients with 3 samples and 1, from a model of ones."""
    layout = Layout.of(nn.Linear(4, 1, bias=False))
    method = Gma.parse({"server": {"name": "gma", **options}, "weighting": weighting})
    fold = method.fold(layout)
    for one in (update(0, 3, 1.0, 2.0, -1.0, 0.0), update(1, 1, 5.0, -2.0, -3.0, 4.0)):
        fold.add(one, method.weighting.weigh(one, layout))
    server = Server(torch.ones(4), torch.zeros(0), {})
    return (method.server_step(server, fold.result()).model - 1).tolist()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tau": 0.0}, [2.0, 1.0, -1.5, 1.0]),
        ({}, [2.0, 1.0, -1.5, 0.25]),
        ({"tau": 0.5}, [2.0, 1.0, -1.5, 0.25]),
        ({"tau": 0.6}, [2.0, 0.5, -1.5, 0.25]),
        ({"tau": 1.0}, [2.0, 0.5, -1.5, 0.25]),
        ({"tau": 0.6, "lr": 2.0}, [4.0, 1.0, -3.0, 0.5]),
    ],
)
def test_a_round_by_hand(options, expected):
    """Δ₀ = (1, 2, −1, 0) of 3 samples, Δ₁ = (5, −2, −3, 4) of one: p = (¾, ¼).

    The mean is (8/4, 4/4, −6/4, 4/4) = (2, 1, −3/2, 1). A = |¾ sign Δ₀ + ¼ sign Δ₁| = (1, ½, 1, ¼): who
    doesn't move has no sign. m = 1 where A ≥ τ, A elsewhere; τ is 0.4 by default.
    """
    assert step(options) == expected


def test_equal_weights_by_hand():
    """p = (½, ½): means (3, 0, −2, 2), A = (1, 0, 1, ½), and τ = 0.6 halves the last."""
    assert step({"tau": 0.6}, "uniform") == [3.0, 0.0, -2.0, 1.0]


@pytest.mark.parametrize(("tau", "mask"), [(0.5, 1.0), (0.51, 0.5)])
def test_a_federation_by_hand(tau, mask):
    """One step of η = 1 from w = 0 brings client 0 to (½, −½) and client 1 to (−½, ½).

    They disagree on both numbers: A = ¾ − ¼ = ½ and the mean is (¼, −¼), taken whole or by half.
    """
    federation = bernoulli({"name": "gma", "server": {"name": "gma", "tau": tau}})
    play(federation, 1)
    assert federation.server.model.tolist() == pytest.approx([mask / 4, -mask / 4])


def digits(method):
    return quadratic.digits(method, 3, local={"steps": 5, "batch": 16, "lr": 0.1})[1][-1]


def test_without_a_threshold_it_is_fedavg_and_with_one_it_moves_less():
    start = digits({"name": "gma", "server": {"name": "gma", "lr": 1e-30}})
    average = digits("fedavg")
    assert torch.equal(digits({"name": "gma", "server": {"name": "gma", "tau": 0.0}}), average)
    strict = digits({"name": "gma", "server": {"name": "gma", "tau": 1.0}})
    assert 0.1 < float((strict - start).norm() / (average - start).norm()) < 0.95
    assert math.isfinite(float(strict.sum()))
