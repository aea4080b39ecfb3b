"""Features and logits of modules that do and don't offer features themselves."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mnemos.common.rng import generator
from mnemos.errors import ConfigError
from mnemos.models.features import features_and_logits
from mnemos.models.model import build_model, models


class Plain(nn.Module):
    """Layers in another order than they are used in."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(5, 3)
        self.first = nn.Linear(4, 5)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.last(self.first(x).relu())


class Own(Plain):
    def features(self, x: Tensor) -> Tensor:
        return self.first(x).relu()


def test_classifier() -> None:
    module = build_model(models.parse("cnn"), (1, 8, 8), 10, generator(0, "model"))
    x = torch.randn(4, 1, 8, 8)
    features, logits = features_and_logits(module, x)
    assert torch.equal(features, module.features(x))
    assert torch.equal(logits, module(x))


@pytest.mark.parametrize("kind", [Plain, Own])
def test_other_modules(kind: type[Plain]) -> None:
    module, x = kind(), torch.randn(6, 4)
    features, logits = features_and_logits(module, x)
    assert module.calls == 1
    assert torch.equal(features, module.first(x).relu())
    assert torch.equal(logits, module(x))
    assert all(not layer._forward_pre_hooks for layer in module.modules())
    features.sum().backward()
    assert module.first.weight.grad is not None


def test_features_that_are_a_layer_are_not_feature_vectors() -> None:
    module = nn.Sequential()
    module.add_module("features", nn.Conv2d(1, 2, 3))
    module.add_module("flat", nn.Flatten())
    module.add_module("classifier", nn.Linear(8, 3))
    features, logits = features_and_logits(module, torch.randn(2, 1, 4, 4))
    assert features.shape == (2, 8)
    assert logits.shape == (2, 3)


def test_no_linear_layer() -> None:
    with pytest.raises(ConfigError, match="neither a features"):
        features_and_logits(nn.Sequential(nn.Conv2d(1, 3, 2), nn.Flatten()), torch.randn(2, 1, 2, 2))
