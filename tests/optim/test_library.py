"""Optimisers of other libraries on views of the vector; AdamP against numbers worked out by hand."""

import math
import sys

import pytest
import torch
from torch import nn

from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.optim.adam import Adam
from mnemos.optim.optimizer import optimizers
from mnemos.vector import Layout


def net():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 5))


LAYOUT = Layout.of(net())


def gradients(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(LAYOUT.size, generator=generator) for _ in range(count)]


def run(optimizer, w, given, state=None, rates=None, decay=0.0):
    """Steps along the gradients given; the state after them."""
    fresh = optimizer.init(w, LAYOUT)
    if state is not None:
        assert fresh.keys() == state.keys()
        assert all(fresh[name].shape == value.shape for name, value in state.items())
        fresh.update({name: value.clone() for name, value in state.items()})
    for number, gradient in enumerate(given):
        optimizer.step(w, gradient.clone(), fresh, rates[number] if rates else 0.05, decay)
    return optimizer.settled(fresh)


ROW = Layout.of(nn.Linear(2, 1, bias=False))


@pytest.mark.parametrize(
    ("gradient", "expected"),
    [([4.0, -3.0], [2.873, 4.064]), ([3.0, 4.0], [2.75, 3.7])],
    ids=["across", "along"],
)
def test_adamp_by_hand(gradient, expected):
    """w = (3, 4), one row of two; η = 0.1, λ = ½, β₁ = 0.9, wd_ratio = 0.1.

    In the first step m / √v̂ = 0.1 · sign g, to be multiplied by η / (1 − β₁) = 1.

    Across w, g = (4, −3): cos(g, w) = 0 < 0.1/√2, so the part of 0.1 · (1, −1) along w/|w| = (0.6, 0.8),
    which is −0.02 of it, is taken out: (0.1 + 0.012, −0.1 + 0.016) = (0.112, −0.084). Decay is a tenth of ηλ:
    w = 0.995 · (3, 4) − (0.112, −0.084) = (2.873, 4.064).
    Along w, g = (3, 4): cos(g, w) = 1, so nothing is taken out: w = 0.95 · (3, 4) − (0.1, 0.1) = (2.75, 3.7).
    """
    optimizer, w = optimizers.parse("adamp"), torch.tensor([3.0, 4.0])
    optimizer.step(w, torch.tensor(gradient), optimizer.init(w, ROW), lr=0.1, decay=0.5)
    assert w.tolist() == pytest.approx(expected, rel=1e-5)


def slow_adamp(w, given, lr, decay, delta):
    """AdamP on one tensor [rows, …], number by number in double precision; says how often it projected."""
    w, mean, square = w.double(), torch.zeros(w.shape).double(), torch.zeros(w.shape).double()
    projected = 0
    for t, g in enumerate((g.double() for g in given), 1):
        mean = 0.9 * mean + 0.1 * g
        square = 0.999 * square + 0.001 * g * g
        update = mean / (square.sqrt() + 1e-8) * math.sqrt(1 - 0.999**t)
        ratio = 1.0
        for rows in (list(range(len(w))), None) if w.ndim > 1 else ():
            pieces = [torch.arange(len(w)) == row for row in rows] if rows else [torch.ones(len(w)).bool()]
            cosines = [abs(float((g[p] * w[p]).sum() / (g[p].norm() * w[p].norm()))) for p in pieces]
            if max(cosines) < delta / math.sqrt(w[pieces[0]].numel()):
                for p in pieces:
                    unit = w[p] / (w[p].norm() + 1e-8)
                    update[p] = update[p] - unit * (unit * update[p]).sum()
                ratio, projected = 0.1, projected + 1
                break
        w = w * (1 - lr * decay * ratio) - lr / (1 - 0.9**t) * update
    return w, projected


@pytest.mark.parametrize("delta", [0.1, 1.5], ids=["seldom projects", "often projects"])
def test_adamp_agrees_with_an_independent_one(delta):
    start = gradients(1, seed=9)[0]
    given = gradients(10)
    w = start.clone()
    run(optimizers.parse({"name": "adamp", "delta": delta}), w, given, decay=0.1)
    projections = 0
    slopes = [LAYOUT.views(gradient) for gradient in given]
    for name, tensor in LAYOUT.views(start).items():
        expected, times = slow_adamp(tensor, [slope[name] for slope in slopes], 0.05, 0.1, delta)
        projections += times
        torch.testing.assert_close(LAYOUT.views(w)[name], expected.float(), rtol=1e-4, atol=1e-5)
    assert (projections >= 5) == (delta > 1)


def test_ten_steps_agree_with_the_library_itself():
    """With a rate that changes, as by a schedule."""
    from pytorch_optimizer import AdamP

    module = net()
    w, _ = LAYOUT.gather(module.state_dict())
    rates = [0.1 / (1 + step) for step in range(10)]
    theirs = AdamP(module.parameters(), lr=1.0, weight_decay=0.1, delta=0.5, nesterov=True)
    for gradient, rate in zip(gradients(10), rates, strict=True):
        for parameter, slope in zip(module.parameters(), LAYOUT.views(gradient).values(), strict=True):
            parameter.grad = slope.clone()
        theirs.param_groups[0]["lr"] = rate
        theirs.step()
    options = {"name": "adamp", "delta": 0.5, "nesterov": True}
    run(optimizers.parse(options), w, gradients(10), rates=rates, decay=0.1)
    assert torch.equal(w, LAYOUT.gather(module.state_dict())[0])


def library(path, **options):
    return optimizers.parse({"name": "library", "path": path, "options": options})


def test_torchs_adam_by_path_is_ours():
    ours, theirs = torch.ones(LAYOUT.size), torch.ones(LAYOUT.size)
    run(Adam(), ours, gradients(5), decay=0.1)
    run(library("torch.optim:Adam"), theirs, gradients(5), decay=0.1)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


KEEPING = {
    "adamp": optimizers.parse("adamp"),
    "adam": library("torch.optim:Adam", amsgrad=True),
    "momentum": library("torch.optim:SGD", momentum=0.9),
    "adagrad": library("torch.optim:Adagrad"),
    "asgd": library("torch.optim:ASGD"),
    "lion": library("pytorch_optimizer:Lion"),
    "plain": library("torch.optim:SGD"),
}


@pytest.mark.parametrize("name", KEEPING)
def test_a_state_goes_on_where_it_was(name):
    """Three steps, the state as plain tensors, and three more: the same numbers as six in one go."""
    optimizer = KEEPING[name]
    optimizer.check(LAYOUT, kept=True, decay=0.0)
    whole, parts = torch.ones(LAYOUT.size), torch.ones(LAYOUT.size)
    given = gradients(6)
    run(optimizer, whole, given)
    state = run(optimizer, parts, given[:3])
    assert all(value.dtype == torch.float32 for value in state.values())
    run(optimizer, parts, given[3:], dict(state))
    assert torch.equal(parts, whole)
    if name not in {"plain", "momentum"}:  # the state is one that matters
        torch.manual_seed(0)
        parts = torch.ones(LAYOUT.size)
        run(optimizer, parts, given[:3])
        run(optimizer, parts, given[3:])
        assert not torch.equal(parts, whole)


class Forgetful(torch.optim.SGD):
    """Keeps something that isn't a number."""

    def step(self, closure=None):
        super().step(closure)
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["history"] = ["a"]


class Noisy(torch.optim.SGD):
    """Draws from the global generator."""

    def step(self, closure=None):
        torch.rand(1)
        super().step(closure)


class Rateless(torch.optim.Optimizer):
    """Has neither a rate nor decay."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"size": 1.0})

    def step(self, closure=None):
        pass


class Decayless(Rateless):
    """Has a rate and no decay."""

    def __init__(self, parameters, lr):
        torch.optim.Optimizer.__init__(self, parameters, {"lr": lr})


BAD = [
    ({"path": "nowhere:Net"}, r"local\.optimizer\.path: the optimizer 'nowhere:Net' can't be imported"),
    ({"path": "pytorch_optimizer:Liom"}, r"local\.optimizer\.path: .* has no 'Liom'"),
    ({"path": "torch.optim:Adamm"}, r"local\.optimizer\.path: .* has no 'Adamm'"),
    ({"path": "torch.nn:Linear"}, r"local\.optimizer\.path: 'torch\.nn:Linear' is not a class like those of"),
    ({"path": "torch.optim:Adam", "options": {"beta": 1}}, r"local\.optimizer: it can't make .*\(TypeError"),
    ({"path": "torch.optim:Adam", "options": {"betas": [2, 3]}}, r"local\.optimizer: .*\(ValueError: Inv"),
    ({"path": "torch.optim:LBFGS"}, r"local\.optimizer: it can't make a step"),
    ({"path": "test_library:Noisy"}, r"local\.optimizer: it draws from the global random generator"),
    ({"path": "test_library:Rateless"}, r"local\.optimizer: it has no learning rate 'lr'"),
    ({"path": "test_library:Decayless"}, r"local\.optimizer: it has no 'weight_decay'; allowed: local\.w"),
    ({"path": "test_library:Forgetful"}, r"local\.optimizer: its state has 'history', which isn't made of"),
]


@pytest.mark.parametrize(("options", "sentence"), BAD)
def test_what_cannot_be_run_is_refused_before_training(options, sentence):
    local = {"optimizer": {"name": "library", **options}, "optimizer_state": "kept", "weight_decay": 0.1}
    with pytest.raises(ConfigError, match=sentence):
        Federation(Experiment.parse({"local": local}))


@pytest.mark.parametrize("name", ["lr", "weight_decay"])
def test_what_local_sets_is_no_option(name):
    with pytest.raises(ConfigError, match=f"options: found '{name}'; it is set by local.{name}"):
        library("torch.optim:SGD", **{name: 1})


@pytest.mark.parametrize(
    "part", ["adamp", {"name": "library", "path": "pytorch_optimizer:Lion"}], ids=["adamp", "library"]
)
def test_a_missing_package_is_named(part, monkeypatch):
    experiment = Experiment.parse({"local": {"optimizer": part}})
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    with pytest.raises(ConfigError, match=r"local\.optimizer: .* the package pytorch-opt.* extra 'optim'"):
        Federation(experiment)
