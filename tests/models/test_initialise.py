"""Initial weights: repeatable, in PyTorch's distributions, and never from the global generator."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from mnemos.common.rng import generator
from mnemos.errors import ConfigError
from mnemos.models.initialise import initialise, seeded
from mnemos.models.model import build_model, models


class Raw(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))


def values(module: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def layers() -> nn.Module:
    return nn.ModuleList(
        [
            nn.Conv2d(4, 50, 5, groups=2),
            nn.ConvTranspose2d(6, 20, 3),
            nn.Linear(400, 30),
            nn.Linear(9, 1000, bias=False),
            nn.BatchNorm2d(5),
            nn.GroupNorm(2, 6),
            nn.LayerNorm(7),
            nn.InstanceNorm1d(4, affine=True),
            nn.Embedding(100, 30, padding_idx=1),
            nn.GRU(4, 6),
        ]
    )


@pytest.mark.parametrize("name", ["lenet", "cnn", "mlp", "logistic", "resnet18"])
def test_building_is_repeatable_and_leaves_the_global_generator(name: str) -> None:
    options = {"width": 0.1} if name == "resnet18" else {}
    part = models.parse({"name": name, **options})
    before = torch.get_rng_state()
    first = values(build_model(part, (3, 16, 16), 10, generator(0, "model")))
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(1)
    again = values(build_model(part, (3, 16, 16), 10, generator(0, "model")))
    assert torch.equal(first, again)
    other = values(build_model(part, (3, 16, 16), 10, generator(1, "model")))
    assert not torch.equal(first, other)


def test_initialise_is_repeatable_and_leaves_the_global_generator() -> None:
    one, two = layers(), layers()
    assert not torch.equal(values(one), values(two))
    before = torch.get_rng_state()
    initialise(one, generator(0, "model"))
    initialise(two, generator(0, "model"))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(values(one), values(two))
    initialise(two, generator(1, "model"))
    for name, parameter in one.named_parameters():
        same = torch.equal(parameter, dict(two.named_parameters())[name])
        assert same == (name.split(".")[0] in "4567"), name  # the norms


def test_initialise_draws_in_pytorchs_distributions() -> None:
    module = layers()
    for parameter in module.parameters():
        nn.init.constant_(parameter, 100.0)
    initialise(module, generator(0, "model"))
    # Fan-in: channels seen by one output × kernel; of a transposed convolution, as PyTorch counts it.
    for index, fan_in in ((0, 2 * 25), (1, 20 * 9), (2, 400), (3, 9)):
        bound = fan_in**-0.5
        weight = module[index].weight
        assert weight.abs().max() <= bound
        assert weight.abs().max() > 0.98 * bound
        assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
        if module[index].bias is not None:
            assert 0.5 * bound < module[index].bias.abs().max() <= bound
    for index in (4, 5, 6, 7):
        assert torch.equal(module[index].weight, torch.ones_like(module[index].weight))
        assert not module[index].bias.any()
    assert module[8].weight.std().item() == pytest.approx(1, rel=0.1)
    assert not module[8].weight[1].any()
    assert values(module[9]).abs().max() <= 6**-0.5


def test_initialise_resets_running_statistics() -> None:
    module = nn.BatchNorm1d(3)
    module(torch.randn(8, 3) + 5)
    initialise(module, generator(0, "model"))
    assert torch.equal(module.running_mean, torch.zeros(3))
    assert torch.equal(module.running_var, torch.ones(3))
    assert module.num_batches_tracked == 0


def test_parameters_without_a_way_to_reset_them_are_named() -> None:
    with pytest.raises(ConfigError, match="the weights of Raw can't be drawn again"):
        initialise(nn.Sequential(nn.Linear(2, 2), Raw()), generator(0, "model"))


def test_threads_that_build_at_the_same_time_get_their_own_weights() -> None:
    part = models.parse({"name": "mlp", "hidden": [50, 50, 50]})
    alone = [values(build_model(part, (20,), 5, generator(k, "model"))) for k in range(4)]
    found: dict[int, torch.Tensor] = {}

    def work(k: int) -> None:
        found[k] = values(build_model(part, (20,), 5, generator(k, "model")))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(alone[k], found[k]) for k in range(4))


def test_seeded_restores_the_state_after_an_error() -> None:
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError), seeded(generator(0, "x")):
        torch.rand(1).view(2)
    assert torch.equal(before, torch.get_rng_state())
