"""Modules as users write them: every engine treats them alike, or says why it can't."""

import pytest
import torch
from torch import nn

from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from support.play import play


class Frozen(nn.Module):
    """A layer that isn't trained, an index and a mask as buffers."""

    def __init__(self, classes):
        super().__init__()
        self.body = nn.Linear(64, 16)
        self.body.requires_grad_(False)
        self.head = nn.Linear(16, classes)
        self.register_buffer("index", torch.randperm(64))
        self.register_buffer("hidden", torch.arange(64) % 7 == 0)

    def forward(self, x):
        x = x.flatten(1)[:, self.index].masked_fill(self.hidden, 0.0)
        return self.head(torch.relu(self.body(x)))


class Shared(nn.Module):
    """One batch-norm used twice, and one that stays in evaluation mode."""

    def __init__(self, classes):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 12), nn.Linear(12, 12), nn.Linear(12, classes)])
        self.norm = nn.BatchNorm1d(12)
        self.same = self.norm
        self.fixed = nn.BatchNorm1d(12)

    def train(self, mode=True):
        super().train(mode)
        self.fixed.eval()
        return self

    def forward(self, x):
        x = torch.relu(self.norm(self.layers[0](x.flatten(1))))
        return self.layers[2](torch.relu(self.fixed(self.same(self.layers[1](x)))))


class Directional(nn.Module):
    """Features of length one: a division by zero for a blank image."""

    def __init__(self, classes):
        super().__init__()
        self.body, self.head = nn.Linear(64, 8, bias=False), nn.Linear(8, classes)

    def forward(self, x):
        x = self.body(x.flatten(1) + 1.3)
        return self.head(x / x.norm(dim=1, keepdim=True))


class Tied(nn.Module):
    """A weight that is used in two places."""

    def __init__(self, classes):
        super().__init__()
        self.a, self.b = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)
        self.b.weight = self.a.weight
        self.head = nn.Linear(64, classes)

    def forward(self, x):
        return self.head(torch.relu(self.b(torch.relu(self.a(x.flatten(1))))))


class Averaging(nn.Module):
    """Keeps a moving average of its inputs in a buffer."""

    def __init__(self, classes, persistent=True):
        super().__init__()
        self.layer = nn.Linear(64, classes)
        self.register_buffer("mean", torch.zeros(64), persistent=persistent)

    def forward(self, x):
        x = x.flatten(1)
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return self.layer(x - self.mean)


class Constant(nn.Module):
    """Nothing to train."""

    def __init__(self, classes):
        super().__init__()
        self.classes = classes

    def forward(self, x):
        return x.new_zeros(len(x), self.classes)


def train(model, engine, rounds=2):
    experiment = Experiment.parse(
        {
            "partition": {"name": "quantity", "clients": 12, "min_samples": 5},
            "model": model,
            "local": {"epochs": 2, "batch": 8, "lr": 0.05, "weight_decay": 0.01},
            "participation": 0.5,
            "engine": engine,
        }
    )
    federation, _ = play(experiment, rounds)
    return federation.server


@pytest.mark.parametrize("name", ["Frozen", "Shared", "Directional", "Tied"])
def test_engines_agree(name):
    model = {"name": f"test_own_modules:{name}"}
    serial = train(model, "serial")
    threads = train(model, {"name": "threads", "workers": 3})
    assert torch.equal(threads.model, serial.model)
    assert torch.equal(threads.buffers, serial.buffers)
    vmap = train(model, "vmap")
    torch.testing.assert_close(vmap.model, serial.model, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(vmap.buffers, serial.buffers, rtol=1e-3, atol=1e-4)


def test_only_what_is_trained_is_in_the_vector():
    server = train("test_own_modules:Frozen", "serial", rounds=1)
    assert server.model.numel() == 16 * 10 + 10
    assert server.buffers.numel() == 0


def test_a_buffer_that_training_changes_is_averaged_or_refused():
    model = "test_own_modules:Averaging"
    serial, threads = train(model, "serial"), train(model, {"name": "threads", "workers": 3})
    assert torch.equal(serial.buffers, threads.buffers)
    assert float(serial.buffers.abs().sum()) > 0
    with pytest.raises(ConfigError, match="changes its buffer 'mean'"):
        train(model, "vmap")
    with pytest.raises(ConfigError, match="buffer 'mean', which clients would share"):
        train({"name": model, "options": {"persistent": False}}, "serial")


def test_a_model_without_parameters_is_refused():
    with pytest.raises(ConfigError, match="model: it has no parameters to train"):
        train("test_own_modules:Constant", "serial")
