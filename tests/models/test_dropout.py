"""Dropout from an explicit generator."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mnemos.common.rng import generator
from mnemos.models.dropout import Dropout, draws_globally, own_dropout, set_generator


class Functional(nn.Module):
    """Dropout that no layer shows, and statistics that a forward pass changes."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.drop(self.norm(x)), 0.1, self.training)


def test_mask_comes_from_the_generator() -> None:
    layer, x = Dropout(0.25), torch.ones(40, 50)
    layer.generator = generator(0, "dropout")
    before = torch.get_rng_state()
    first = layer(x)
    second = layer(x)
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(first, second)
    layer.generator = generator(0, "dropout")
    assert torch.equal(layer(x), first)
    assert first.unique().tolist() == pytest.approx([0, 4 / 3])
    assert first.mean().item() == pytest.approx(1, abs=0.05)


def test_channels_are_dropped_whole() -> None:
    layer = Dropout(0.5, channelwise=True)
    layer.generator = generator(0, "dropout")
    y = layer(torch.ones(10, 20, 3, 4))
    assert torch.equal(y, y[:, :, :1, :1].expand_as(y))
    assert set(y.unique().tolist()) == {0.0, 2.0}
    # A batch of vectors, each element a channel: not all or nothing.
    assert set(layer(torch.ones(10, 20)).unique().tolist()) == {0.0, 2.0}


def test_limits_and_evaluation() -> None:
    x = torch.randn(3, 4)
    assert Dropout(0.0)(x) is x
    assert Dropout(0.5).eval()(x) is x
    assert not Dropout(1.0)(x).any()


def test_gradient_goes_through_the_mask() -> None:
    layer, x = Dropout(0.5), torch.ones(100, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


def test_layers_are_replaced_at_any_depth() -> None:
    shared = nn.Dropout(0.1)
    module = nn.Sequential(
        nn.Linear(4, 4),
        nn.Sequential(nn.Dropout2d(0.2), nn.ModuleDict({"deep": nn.Dropout1d(0.3)}), shared),
        shared,
        nn.Dropout3d(0.4).eval(),
        nn.AlphaDropout(0.5),
    )
    assert own_dropout(module) is module
    found = [layer for layer in module.modules() if isinstance(layer, Dropout)]
    assert [(layer.p, layer.channelwise) for layer in found] == [
        (0.2, True), (0.3, True), (0.1, False), (0.4, True),
    ]  # fmt: skip
    assert module[1][2] is module[2]
    assert not module[3].training
    assert isinstance(module[4], nn.AlphaDropout)
    assert isinstance(own_dropout(nn.Dropout(0.2)), Dropout)


def test_set_generator_and_copy() -> None:
    module = own_dropout(nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5))))
    draws = generator(0, "dropout")
    set_generator(module, draws)
    assert module[0].generator is draws
    assert module[1][0].generator is draws
    x = torch.ones(50)
    assert torch.equal(copy.deepcopy(module)(x), module(x))
    set_generator(module, None)
    assert module[0].generator is None


def test_global_draws_are_noticed_and_undone() -> None:
    module = own_dropout(Functional())
    draws = generator(0, "dropout")
    set_generator(module, draws)
    module.eval()
    module.drop.train()
    state, own = torch.get_rng_state(), draws.get_state()
    buffers = [buffer.clone() for buffer in module.buffers()]
    assert draws_globally(module, (4,))
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(own, draws.get_state())
    assert module.drop.generator is draws
    assert all(torch.equal(a, b) for a, b in zip(buffers, module.buffers(), strict=True))
    assert (module.training, module.norm.training, module.drop.training) == (False, False, True)


def test_own_dropout_does_not_count_as_global() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    assert draws_globally(module, (4,))
    assert not draws_globally(own_dropout(module), (4,))
    assert not draws_globally(nn.Linear(4, 4), (4,))
