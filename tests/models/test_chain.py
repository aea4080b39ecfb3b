"""Gradients of chains of linear layers in closed form, beside autograd's."""

import pytest
import torch
from torch import nn
from torch.func import grad

from mnemos.models.functional import Functional
from mnemos.models.model import Classifier
from mnemos.objectives.softmax import nll_slopes

SHAPE, CLASSES = (1, 2, 3), 4


def one_layer():
    return Classifier(nn.Flatten(), 6, CLASSES)


def deep():
    layers = [
        nn.Flatten(),
        nn.Linear(6, 5),
        nn.Identity(),
        nn.ReLU(inplace=True),
        nn.Linear(5, 7, bias=False),
    ]
    return Classifier(nn.Sequential(*layers, nn.ReLU()), 7, CLASSES)


def linear_in_the_middle():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(6, 3), nn.Sequential(nn.Linear(3, 5), nn.ReLU()), nn.Linear(5, 4)
    )


@pytest.mark.parametrize("build", [one_layer, deep, linear_in_the_middle])
def test_gradient_is_that_of_autograd(build):
    torch.manual_seed(0)
    functional = Functional(build())
    points, x = torch.randn(3, functional.layout.size), torch.randn(3, 5, *SHAPE)
    labels = torch.randint(CLASSES, (3, 5))
    logits, inputs = functional.chain.forward(points, x)
    slopes, losses = nll_slopes(logits, labels)
    found = functional.chain.backward(points, inputs, slopes)
    for k in range(3):

        def losses_of(point, k=k):
            logits = functional.call(point, torch.zeros(0), x[k])
            return nn.functional.cross_entropy(logits, labels[k], reduction="none")

        torch.testing.assert_close(losses[k], losses_of(points[k]))
        torch.testing.assert_close(found[k], grad(lambda point: losses_of(point).sum())(points[k]))


def test_by_hand():
    """w = (1, −1), x = 2, label 0: scores (2, −2), p₀ = 1 / (1 + e⁻⁴); the gradient is x (p₀ − 1, 1 − p₀)."""
    functional = Functional(nn.Sequential(nn.Linear(1, 2, bias=False)))
    points, share = torch.tensor([[1.0, -1.0]]), 1 / (1 + torch.tensor(-4.0).exp())
    logits, inputs = functional.chain.forward(points, torch.tensor([[[2.0]]]))
    slopes, losses = nll_slopes(logits, torch.tensor([[0]]))
    torch.testing.assert_close(losses, -share.log().view(1, 1))
    found = functional.chain.backward(points, inputs, slopes)
    torch.testing.assert_close(found, 2 * torch.stack([share - 1, 1 - share])[None])


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked():
    module = one_layer()
    module.head.register_forward_hook(lambda _module, _inputs, output: 2 * output)
    return module


def shared():
    layer = nn.Linear(6, 6)
    return Classifier(nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer), 6, CLASSES)


@pytest.mark.parametrize(
    "build",
    [
        hooked,
        shared,
        lambda: nn.Sequential(nn.Flatten(), Doubled(6, 4)),
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.ReLU()),
        lambda: nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(6, 4)),
        lambda: nn.Sequential(nn.Flatten(0), nn.Linear(6, 4)),
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 4)),
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)),
    ],
)
def test_other_models_are_no_chains(build):
    assert Functional(build()).chain is None
