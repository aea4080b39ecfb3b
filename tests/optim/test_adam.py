"""Adam and AdamW against numbers worked out by hand, and against PyTorch's."""

import pytest
import torch

from mnemos.optim.adam import Adam, AdamW
from mnemos.optim.optimizer import optimizers
from support.flat import flat


@pytest.mark.parametrize(("optimizer", "expected"), [(Adam(), [0.9, 2.1]), (AdamW(), [0.85, 2.0])])
def test_the_first_step_by_hand(optimizer, expected):
    """w = (1, 2), g = (3, −4), η = 0.1, λ = ½.

    In the first step m̂ = g and v̂ = g², so it goes 0.1 along the sign of g whatever its size. Coupled decay
    makes g = (3.5, −3), of the same signs: w = (0.9, 2.1). Decoupled decay first makes w = 0.95 · (1, 2):
    w = (0.85, 2).
    """
    w = torch.tensor([1.0, 2.0])
    optimizer.step(w, torch.tensor([3.0, -4.0]), optimizer.init(w, flat(2)), lr=0.1, decay=0.5)
    assert w.tolist() == pytest.approx(expected, rel=1e-6)


def test_two_steps_by_hand():
    """β₁ = β₂ = ½, η = 1, g = 1 and then 3.

    Step 1: m = ½, v = ½, m̂ = v̂ = 1, w = −1. Step 2: m = ¼ + 3/2 = 7/4, v = ¼ + 9/2 = 19/4; with 1 − ½² = ¾,
    m̂ = 7/3 and v̂ = 19/3, w = −1 − (7/3) / √(19/3).
    """
    optimizer, w = Adam(beta1=0.5, beta2=0.5), torch.zeros(1)
    state = optimizer.init(w, flat(1))
    for gradient in (1.0, 3.0):
        optimizer.step(w, torch.tensor([gradient]), state, lr=1.0, decay=0.0)
    assert float(w) == pytest.approx(-1 - (7 / 3) / (19 / 3) ** 0.5, rel=1e-6)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.5)])
@pytest.mark.parametrize(("name", "reference"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
def test_ten_steps_agree_with_torch(name, reference, betas, decay):
    generator = torch.Generator().manual_seed(0)
    ours = torch.randn(7, generator=generator)
    theirs = ours.clone().requires_grad_()
    library = reference([theirs], lr=0.05, betas=betas, eps=1e-6, weight_decay=decay)
    optimizer = optimizers.parse({"name": name, "beta1": betas[0], "beta2": betas[1], "eps": 1e-6})
    state = optimizer.init(ours, flat(7))
    for _ in range(10):
        gradient = torch.randn(7, generator=generator)
        theirs.grad = gradient.clone()
        library.step()
        optimizer.step(ours, gradient, state, lr=0.05, decay=decay)
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("optimizer", [Adam(), AdamW()])
def test_rows_that_are_at_different_steps_and_rates(optimizer):
    """A matrix of clients, of which one has made two steps before, takes the steps that each takes alone."""
    generator = torch.Generator().manual_seed(1)
    alone = [torch.randn(5, generator=generator) for _ in range(2)]
    states = [optimizer.init(w, flat(5)) for w in alone]
    for _ in range(2):
        optimizer.step(alone[1], torch.randn(5, generator=generator), states[1], 0.1, 0.01)
    rows = torch.stack(alone)
    together = {name: torch.stack([state[name] for state in states]) for name in states[0]}
    rates = (0.1, 0.02)
    for _ in range(3):
        gradients = torch.randn(2, 5, generator=generator)
        for w, gradient, state, lr in zip(alone, gradients.clone(), states, rates, strict=True):
            optimizer.step(w, gradient, state, lr, 0.01)
        optimizer.step(rows, gradients, together, torch.tensor(rates)[:, None], 0.01)
    torch.testing.assert_close(rows, torch.stack(alone), rtol=1e-6, atol=1e-7)
    assert together["steps"].flatten().tolist() == [3, 5]
