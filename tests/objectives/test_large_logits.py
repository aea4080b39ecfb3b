"""Losses and gradients of large logits against double precision; ordinary ones don't change a bit."""

import numpy as np
import pytest
import torch
from torch.func import grad_and_value, vmap

from mnemos.objectives.fedlc import LogitsCalibration
from mnemos.objectives.fedrs import RestrictedSoftmax
from mnemos.objectives.objective import objectives

CASES = {
    **{name: objectives[name]() for name in objectives.names()},
    "fedlc others": LogitsCalibration(denominator="others"),
    "fedlc 3": LogitsCalibration(tau=3.0),
    "fedrs 0.9": RestrictedSoftmax(alpha=0.9),
    "fedrs soft": RestrictedSoftmax(alpha=0.3, soft=True),
}
COUNTS = [[7, 1, 20, 3], [5, 0, 2, 0], [0, 9, 0, 0]]


def reference(name, f, y, n):
    """One sample's loss and its gradient, from the formulas, in double precision."""
    held = n > 0
    beta = n / n.sum()
    margin = CASES[name].tau * np.where(held, n, 1e-8) ** -0.25 if name.startswith("fedlc") else 0.0
    slope = np.ones(len(n))
    if name.startswith("fedrs"):
        part = CASES[name]
        slope = part.alpha + (1 - part.alpha) * n / n.max() if part.soft else np.where(held, 1.0, part.alpha)
        slope = slope.astype(np.float32).astype(np.float64)  # the scales are float32
    masked = np.where(held, f, 0.0)
    # What is summed: scores, and how much each exponential counts; then the score that is subtracted.
    scores, counts, own = {
        "ce": (f, 1.0, f),
        "wsm": (f, beta, f),
        "balanced": (f, beta, f + np.log(np.where(held, beta, 1))),
        "tce": (f, held, f),
        "task-ce": (f, held, f),
        "masked-ce": (masked, 1.0, masked),
        "fedlc": (f - margin, 1.0, f - margin),
        "fedlc 3": (f - margin, 1.0, f - margin),
        "fedlc others": (f - margin, np.arange(len(n)) != y, f - margin),
    }.get(name, (slope * f, 1.0, slope * f))
    counts = np.broadcast_to(np.asarray(counts, np.float64), scores.shape)
    top = scores[counts > 0].max()
    weights = counts * np.exp(np.where(counts > 0, scores - top, -np.inf))
    loss = np.log(weights.sum()) + (top - own[y])
    gradient = slope * (weights / weights.sum() - (np.arange(len(n)) == y))
    return loss, gradient * held if name == "masked-ce" else gradient


def logits(spread, generator):
    """Twenty samples whose four logits are near one of ±10⁴, ±3000 and 0, or on both sides."""
    base = torch.tensor([1e4, -1e4, 3e3, -3e3, 0.0]).repeat(4)[:, None]
    some = base + spread * torch.randn(20, 4, generator=generator)
    some[15:] = 1e4 * torch.tensor([1.0, -1.0])[torch.randint(2, (5, 4), generator=generator)]
    return some


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("spread", [0.5, 5.0])
@pytest.mark.parametrize("name", CASES)
def test_losses_and_gradients_are_those_of_double_precision(name, spread, counts):
    """To some last places of float32: 10⁻⁵ of a loss, and of a gradient of 1, one by one and under `vmap`.

    An absent class of `fedlc` has a margin of 100, which float32 knows to 4 · 10⁻⁶.
    """
    generator = torch.Generator().manual_seed(len(name))
    x, n = logits(spread, generator), torch.tensor(counts, dtype=torch.float32)
    labels = torch.multinomial(n, len(x), replacement=True, generator=generator)
    expected = [
        reference(name, f, y, n.double().numpy())
        for f, y in zip(x.double().numpy(), labels.tolist(), strict=True)
    ]
    losses, gradients = (np.array(column) for column in zip(*expected, strict=True))
    given = x.clone().requires_grad_()
    found = CASES[name](given, labels, n)
    (slopes,) = torch.autograd.grad(found.sum(), given)
    assert found.detach().double().numpy() == pytest.approx(losses, rel=1e-6, abs=1e-5)
    assert slopes.double().numpy() == pytest.approx(gradients, abs=1e-5)

    def one(x, label):
        return CASES[name](x[None], label[None], n)[0]

    slopes, found = vmap(grad_and_value(one))(x, labels)
    assert found.double().numpy() == pytest.approx(losses, rel=1e-6, abs=1e-5)
    assert slopes.double().numpy() == pytest.approx(gradients, abs=1e-5)


def test_two_equal_logits_by_hand():
    """At −10⁴ as at 0, a choice between two is log 2; float32's next number to 10⁴ is 0.00098 away."""
    found = [
        float(objectives["ce"]()(torch.full((1, 2), at), torch.tensor([0]), torch.ones(2)))
        for at in (0.0, -1e4, 1e4)
    ]
    assert found == pytest.approx([np.log(2)] * 3, abs=1e-7)


def before(name, f, y, n):
    """The losses as they are written: log-sum-exp less the own score, whatever the logits' size."""
    shares = n.log().clamp_min(-1e30).log_softmax(0)
    part, held = CASES[name], torch.where(n > 0, f, -1e30)
    if name in {"tce", "task-ce"}:
        s = own = held
    elif name == "wsm":
        s, own = f + shares, f
    elif name == "balanced":
        s = own = f + shares
    elif name == "masked-ce":
        s = own = torch.where(n > 0, f, 0.0)
    elif name.startswith("fedlc"):
        s = own = f - part.tau * torch.where(n > 0, n, part.missing).pow(-0.25)
        if part.denominator == "others":
            s = torch.where(y[:, None] == torch.arange(4), -1e30, s)
    elif name.startswith("fedrs"):
        scale = torch.where(n > 0, 1.0, part.alpha)
        s = own = f * (part.alpha + (1 - part.alpha) * n / n.max().clamp_min(1) if part.soft else scale)
    else:
        s = own = f
    return s.logsumexp(1) - own.gather(1, y[:, None]).squeeze(1)


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_ordinary_logits_have_the_bits_of_the_plain_formula(name, counts):
    """Up to ±20, and mean gradients over a batch of ten, one by one and of several clients at once."""
    generator, n = torch.Generator().manual_seed(1), torch.tensor(counts, dtype=torch.float32)
    x = (8 * torch.randn(6, 10, 4, generator=generator)).clamp(-20, 20)
    labels = torch.multinomial(n, 60, replacement=True, generator=generator).view(6, 10)

    def mean(loss):
        return grad_and_value(lambda x, labels: loss(x, labels, n).mean())

    def formula(x, labels, n):
        return before(name, x, labels, n)

    for ours, plain in zip(vmap(mean(CASES[name]))(x, labels), vmap(mean(formula))(x, labels), strict=True):
        assert torch.equal(ours, plain)
    for rows, own in zip(x, labels, strict=True):
        results = []
        for loss in (CASES[name], formula):
            given = rows.clone().requires_grad_()
            losses = loss(given, own, n)
            results.append((losses.detach(), *torch.autograd.grad(losses.mean(), given)))
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("name", ["ce", "wsm", "tce"])
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_a_loss_can_be_differentiated_twice(name, size):
    """As UGA does, through the steps of a round: the Hessian of CE is diag(p) − p pᵀ."""
    n = torch.tensor([3.0, 1.0, 2.0])
    x = size + torch.tensor([[0.3, -0.2, 0.9]], dtype=torch.float64)
    hessian = torch.autograd.functional.hessian(
        lambda x: objectives[name]()(x, torch.tensor([0]), n).sum(), x
    ).view(3, 3)
    p = (x + (torch.log(n / 6) if name == "wsm" else 0)).softmax(1)[0]
    torch.testing.assert_close(hessian, torch.diag(p) - p[:, None] * p, rtol=1e-6, atol=1e-7)
