"""RMSGD's rates against numbers worked out by hand, and against ranks computed independently."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import nn

from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.optim.optimizer import optimizers
from mnemos.vector import Layout

MODEL = nn.Sequential(
    nn.BatchNorm2d(4),
    nn.Conv2d(4, 4, 3),
    nn.Conv2d(4, 4, 1),
    nn.Conv2d(4, 4, 3),
    nn.Flatten(),
    nn.Linear(4, 2),
)
"""A tensor without a rank in front, a convolution, a pointwise one, another, and a linear layer."""
LAYOUT = Layout.of(MODEL)
FIRST, POINTWISE, SECOND = "1.weight", "2.weight", "3.weight"
RANKS = [(1, 0), (2, 0), (3, 0), (3, 2), (1, 3), (2, 3), (2, 1), (0, 1), (1, 2), (3, 2)]
"""The ranks of both convolutions at the end of ten epochs."""

PAPER = {
    "0.weight": [1 / 2, 1 / 2, 1 / 4, 1 / 4, 1 / 8, 1 / 8, 1 / 16, 1 / 16, 1 / 32, 1 / 32],
    FIRST: [1 / 2, 1 / 2, 3 / 8, 3 / 16, 0, 1 / 16, 1 / 32, 0, 1 / 64, 5 / 128],
    SECOND: [1 / 2, 1 / 2, 1 / 2, 1 / 2, 5 / 16, 5 / 32, 1 / 64, 1 / 128, 5 / 256, 5 / 512],
}
MAIN = {
    "0.weight": [1 / 2] * 10,
    FIRST: [3 / 4, 5 / 8, 9 / 32, 9 / 64, 0, 1 / 16, 1 / 64, 0, 1 / 64, 5 / 128],
    SECOND: [3 / 4, 1 / 2, 1 / 2, 1 / 2, 3 / 16, 3 / 32, 0, 0, 1 / 64, 1 / 128],
    POINTWISE: [3 / 4] + [1 / 2] * 9,
}


def ranked(first, second):
    """A model whose convolutions have so many equal singular values on both sides, and zeros elsewhere.

    Of four rows r are unit vectors, each in a column of its own, so all r singular values are 1 whichever way
    the tensor is unfolded. What is left is exactly 0: there is no noise, EVBMF takes nothing away, and the
    knowledge gain is r/4.
    """
    parameters = LAYOUT.zeros()
    for name, rank in ((FIRST, first), (SECOND, second)):
        for row in range(rank):
            LAYOUT.views(parameters)[name][row, row, 1, 1] = 1.0
    return parameters


@pytest.mark.parametrize(("variant", "expected"), [("paper", PAPER), ("main", MAIN)])
def test_ten_epochs_by_hand(variant, expected):
    """η₀ = ½, β = ½, γ = ½ every second epoch, so ζ = 1, 1, ½, ½, ¼, ¼, ⅛, ⅛, 1/16, 1/16.

    Gains v after the first epoch, in quarters: A = 1, 1, 0, −2, 1, 0, −2, 1, 2 and
    C = 0, 0, 2, 1, 0, −2, 0, 1, 0, where C has no rank in the epochs 0, 1 and 2: it keeps ½ in 1 and 2.

    paper, η = 0 at first, η ← max(½ η + ζ v, 1e-10), and the first tensors' ½ is halved with ζ:
    0. ½ · 0 + ½ = ½ for both.
    1. A = ¼ + ¼ = ½.
    2. A = ¼ + ½ · ¼ = 3/8.
    3. A = 3/16. C = ¼ + ½ · ½ = ½.
    4. A = 3/32 − ¼ · ½ < 0. C = ¼ + ¼ · ¼ = 5/16.
    5. A = ¼ · ¼ = 1/16. C = 5/32.
    6. A = 1/32. C = 5/64 − ⅛ · ½ = 1/64.
    7. A = 1/64 − ⅛ · ½ < 0: a rank that is lost again is a loss. C = 1/128.
    8. A = 1/16 · ¼ = 1/64. C = 1/256 + 1/64 = 5/256.
    9. A = 1/128 + 1/16 · ½ = 5/128. C = 5/512.

    main, η = ½ at first, η ← max(½ η + ζ v, 0) with η halved beforehand whenever ζ is:
    0. ¼ + ½ = ¾ for all.
    1. A = 3/8 + ¼ = 5/8.
    2. A = ½ · 5/16 + ½ · ¼ = 9/32.
    3. A = 9/64. C = ¼ + ½ · ½ = ½.
    4. A = 9/256 − ¼ · ½ < 0. C = ⅛ + ¼ · ¼ = 3/16.
    5. A = 1/16. C = 3/32.
    6. A = 1/64. C = 3/128 − ⅛ · ½ < 0.
    7. A = 1/128 − 1/16 < 0. C = 0.
    8. A = 1/64. C = 1/64.
    9. A = 1/128 + 1/32 = 5/128. C = 1/128.
    The pointwise convolution, which counts here, never has a rank: ½ from epoch 1 on.

    A step follows each epoch: with gradients of 1 and momentum ½ the velocity is 2 − 2^(1 − t) in step t, so
    a parameter goes as far as its tensor's rate times that.
    """
    options = {"variant": variant, "beta": 0.5, "gamma": 0.5, "step_size": 2, "momentum": 0.5}
    optimizer = optimizers.parse({"name": "rmsgd", **options})
    state = optimizer.init(LAYOUT.zeros(), LAYOUT)
    for epoch, ranks in enumerate(RANKS):
        optimizer.epoch(ranked(*ranks), state, LAYOUT, lr=0.5)
        moved = LAYOUT.zeros()
        optimizer.step(moved, torch.ones(LAYOUT.size), state, lr=0.5, decay=0.0)
        views = LAYOUT.views(-moved / (2 - 2.0 ** (-epoch)))
        for name, rates in expected.items():
            every = [rates[epoch]] * views[name].numel()
            assert views[name].flatten().tolist() == pytest.approx(every, abs=1e-8)
        # What has no rank of its own goes with the tensor before it.
        for name, leader in (("0.bias", "0.weight"), ("1.bias", FIRST), ("5.weight", SECOND)):
            assert views[name].flatten()[0] == views[leader].flatten()[0]
        leader = FIRST if variant == "paper" else POINTWISE
        assert views["2.bias"][0] == views[POINTWISE].flatten()[0] == views[leader].flatten()[0]


def test_before_the_first_epoch_it_is_sgd():
    rmsgd, sgd = optimizers.parse("rmsgd"), optimizers.parse({"name": "sgd", "momentum": 0.9})
    generator = torch.Generator().manual_seed(0)
    ours = torch.randn(LAYOUT.size, generator=generator)
    theirs = ours.clone()
    states = rmsgd.init(ours, LAYOUT), sgd.init(theirs, LAYOUT)
    for _ in range(5):
        gradient = torch.randn(LAYOUT.size, generator=generator)
        rmsgd.step(ours, gradient.clone(), states[0], 0.1, 0.01)
        sgd.step(theirs, gradient, states[1], 0.1, 0.01)
    assert torch.equal(ours, theirs)


def test_what_never_changes_is_skipped():
    """Without `step_size` γ plays no part, and pointwise convolutions can be left out of either variant."""
    options = {"name": "rmsgd", "variant": "main", "step_size": None, "skip_pointwise": True}
    optimizer = optimizers.parse(options)
    state = optimizer.init(LAYOUT.zeros(), LAYOUT)
    for ranks in RANKS[:3]:
        optimizer.epoch(ranked(*ranks), state, LAYOUT, lr=0.5)
    assert float(state["zeta"]) == 1
    rates = LAYOUT.views(state["rates"])
    assert rates[POINTWISE].flatten()[0] == rates[FIRST].flatten()[0] != 1


def slow_gain(weight):
    """The knowledge gain of a convolution: the mean of Σ (d / d_max) / rows of both unfoldings."""
    sides = [np.moveaxis(weight, 1, 0).reshape(weight.shape[1], -1), weight.reshape(weight.shape[0], -1)]
    return np.mean([sum(d / d.max()) / len(side) if len(d := slow_evbmf(side)) else 0.0 for side in sides])


def slow_evbmf(matrix):
    """The singular values that Nakajima's analytic solution keeps and shrinks (JMLR 2013, corollary 6)."""
    rows, columns = sorted(matrix.shape)
    s = np.linalg.svd(matrix, compute_uv=False)
    alpha = rows / columns
    tau = 2.5129 * math.sqrt(alpha)
    limit = (1 + tau) * (1 + alpha / tau)

    def free_energy(variance):
        total = 0.0
        for x in s**2 / (columns * variance):
            if x <= limit:
                total += x - math.log(x)
            else:
                far = x - 1 - alpha
                t = (far + math.sqrt(far**2 - 4 * alpha)) / 2
                total += x - t + math.log((t + 1) / x) + alpha * math.log(t / alpha + 1)
        return total

    last = min(math.ceil(rows / (1 + alpha)) - 1, rows) - 1
    upper = (s**2).sum() / (rows * columns)
    lower = max(s[last + 1] ** 2 / (columns * limit), (s[last + 1 :] ** 2).mean() / columns)
    # By brute force, as there are minima that aren't the least.
    grid = np.geomspace(lower, upper, 400)
    least = int(np.argmin([free_energy(variance) for variance in grid]))
    around = grid[max(least - 1, 0)], grid[min(least + 1, 399)]
    best = minimize_scalar(free_energy, bounds=around, method="bounded", options={"xatol": 1e-12}).x
    kept = s[s > math.sqrt(columns * best * limit)]
    left = 1 - (rows + columns) * best / kept**2
    return kept / 2 * (left + np.sqrt(left**2 - 4 * rows * columns * best**2 / kept**4))


def test_gains_of_trained_weights_agree_with_an_independent_computation():
    """Signals of growing rank under noise: the rates of ten epochs as the formula has them, in slow steps."""
    module = nn.Sequential(nn.Conv2d(6, 10, 3), nn.ReLU(), nn.Conv2d(10, 8, 3))
    layout = Layout.of(module)
    optimizer = optimizers.parse({"name": "rmsgd", "beta": 0.9, "gamma": 0.9, "step_size": 3})
    state = optimizer.init(layout.zeros(), layout)
    random = np.random.default_rng(0)
    eta, zeta, ready, before = np.zeros(2), 1.0, np.zeros(2, bool), np.zeros(2)
    for epoch in range(10):
        parameters = torch.from_numpy(random.normal(0, 0.1, layout.size)).float()
        gains = []
        for slot in (layout.parameters[0], layout.parameters[2]):
            outer = np.einsum(
                "or,irk->oik",
                random.normal(size=(slot.shape[0], 1 + epoch // 3)),
                random.normal(size=(slot.shape[1], 1 + epoch // 3, 9)),
            )
            weight = layout.views(parameters)[slot.name]
            weight += torch.from_numpy(0.08 * outer.reshape(slot.shape)).float()
            gains.append(slow_gain(weight.double().numpy()))
        optimizer.epoch(parameters, state, layout, lr=0.03)
        gain = np.array(gains)
        if epoch and epoch % 3 == 0:
            zeta *= 0.9
        eta = np.maximum(0.9 * eta + zeta * (gain - before if epoch else 0.03), 1e-10)
        if epoch:
            ready |= gain > 1e-8
            eta = np.where(ready, eta, 0.03)
        before = gain
        rates = layout.views(0.03 * state["rates"])
        found = [float(rates[name].flatten()[0]) for name in ("0.weight", "2.bias")]
        assert found == pytest.approx(eta.tolist(), rel=1e-3, abs=1e-6)
    assert before.min() > 0.05  # there were ranks to speak of


def test_a_model_without_convolutions_is_refused():
    with pytest.raises(
        ConfigError, match=r"local\.optimizer: rmsgd .* ranks of convolutions, and the model has"
    ):
        Federation(Experiment.parse({"local": {"optimizer": "rmsgd"}}))


def test_that_rates_are_lost_is_said():
    """One epoch a round and a fresh state: no rate that is learnt is ever used."""
    lost = "rmsgd learns at the end of a local epoch"
    base = {"model": {"name": "cnn", "width": 0.125}, "partition": {"clients": 10}}
    for local, said in (({}, True), ({"epochs": 2}, False), ({"optimizer_state": "kept"}, False)):
        federation = Federation(Experiment.parse({**base, "local": {"optimizer": "rmsgd", **local}}))
        assert any(sentence.startswith(lost) for sentence in federation.warnings) == said
        federation.close()
