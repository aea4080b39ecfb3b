"""PASS with FedAvg: its own prototypes, and the distillation of the original."""

import pytest
import torch
from torch import nn

from mnemos.methods.exchange import Batch, Client, Finished
from mnemos.methods.presets.pass_ import FeatureDistillation, Pass
from mnemos.methods.terms.prototypes import Prototypes
from mnemos.optim.local import Local
from mnemos.vector import Layout

LAYOUT = Layout.of(nn.Linear(1, 3, bias=False))


class Scaled:
    """Features are the input times the first parameter."""

    def __init__(self, parameters):
        self.parameters = parameters

    def features(self, x):
        return x * self.parameters[0], x

    def at(self, parameters):
        return Scaled(parameters)


def vector(value):
    return torch.full((3,), value)


def a_round(term, state, held, end, x):
    """The loss of a batch x with the model at `end`, and what the client remembers afterwards."""
    who = Client(vector(0.0), {}, state, torch.ones(3), torch.tensor(held), torch.tensor(held))
    features, _ = Scaled(vector(end)).features(x)
    batch = Batch(x, torch.zeros(len(x), dtype=torch.long))
    loss = term.losses(Scaled(vector(end)), batch, features, who)
    _, kept = term.upload(Finished(who, vector(end), 1, ((1, 0.1),), Local(), {}))
    return float(loss), kept


def test_the_teacher_is_the_model_at_the_end_of_the_task_before():
    """Features w · x of the batch x = (3, 4), so ‖F − F_old‖ = |w − w_old| · 5, with λ = 2.

    The client has class 0 in two rounds (w = 1, then 2): no teacher yet. Then class 1: the old model is
    w = 2, in both its rounds: 2 · |5 − 2| · 5 = 30, 2 · |7 − 2| · 5 = 50. Then class 2, from w = 7:
    2 · |7 − 4| · 5 = 30.
    """
    term, x = FeatureDistillation(weight=2.0), torch.tensor([[3.0], [4.0]])
    state, losses = term.client_state(LAYOUT), []
    for label, end in ((0, 1.0), (0, 2.0), (1, 5.0), (1, 7.0), (2, 4.0)):
        held = [0.0, 0.0, 0.0]
        held[label] = 9.0
        loss, state = a_round(term, state, held, end, x)
        losses.append(loss)
    assert losses == pytest.approx([0, 0, 30, 50, 30])


def test_a_distance_of_nothing_has_no_slope():
    term, x = FeatureDistillation(), torch.tensor([[3.0]])
    state = term.client_state(LAYOUT)
    _, state = a_round(term, state, [1.0, 0.0, 0.0], 2.0, x)
    who = Client(vector(0.0), {}, state, torch.ones(3), *[torch.tensor([0.0, 1.0, 0.0])] * 2)
    parameters = vector(2.0).requires_grad_()
    features, _ = Scaled(parameters).features(x)
    loss = term.losses(Scaled(parameters), Batch(x, torch.tensor([0])), features, who)
    loss.backward()
    assert float(loss.detach()) == 0
    assert parameters.grad.tolist() == [0, 0, 0]


def test_its_terms():
    """Own prototypes of present classes too, measured first in a first task; distillation as an option."""
    (prototypes,) = Pass().own_terms
    assert prototypes == Prototypes(weight=0.01, aggregate=False, radius="first", current=True)
    _, distillation = Pass(distillation=10.0, prototype_weight=10.0).own_terms
    assert distillation == FeatureDistillation(weight=10.0)
    assert Pass().head.rotations
    assert Pass().head.temperature == 0.1
