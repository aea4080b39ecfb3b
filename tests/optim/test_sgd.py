import pytest
import torch

from mnemos.errors import ConfigError
from mnemos.optim.optimizer import optimizers
from mnemos.optim.sgd import Sgd
from support.flat import flat


def test_two_steps_with_momentum_by_hand():
    """w = 1, g = 2 and then 1, η = 0.1, m = 0.5, decay = 0.1.

    Step 1: g' = 2 + 0.1·1 = 2.1, v = 2.1, w = 1 − 0.21 = 0.79.
    Step 2: g' = 1 + 0.1·0.79 = 1.079, v = 0.5·2.1 + 1.079 = 2.129, w = 0.79 − 0.2129 = 0.5771.
    """
    optimizer, w = Sgd(momentum=0.5), torch.tensor([1.0])
    state = optimizer.init(w, flat(1))
    optimizer.step(w, torch.tensor([2.0]), state, lr=0.1, decay=0.1)
    assert float(w) == pytest.approx(0.79)
    optimizer.step(w, torch.tensor([1.0]), state, lr=0.1, decay=0.1)
    assert float(w) == pytest.approx(0.5771)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}])
def test_agrees_with_torch(options):
    generator = torch.Generator().manual_seed(0)
    ours = torch.randn(7, generator=generator)
    theirs = ours.clone().requires_grad_()
    reference = torch.optim.SGD([theirs], lr=0.05, weight_decay=0.01, **options)
    optimizer = Sgd(**options)
    state = optimizer.init(ours, flat(7))
    for _ in range(5):
        gradient = torch.randn(7, generator=generator)
        theirs.grad = gradient.clone()
        reference.step()
        optimizer.step(ours, gradient, state, lr=0.05, decay=0.01)
    torch.testing.assert_close(ours, theirs.detach())


def test_a_matrix_of_clients_takes_the_same_steps_as_its_rows():
    optimizer, rows = Sgd(momentum=0.9), torch.randn(3, 5)
    single, state = rows[1].clone(), None
    states = optimizer.init(rows, flat(5))
    state = optimizer.init(single, flat(5))
    for _ in range(2):
        gradients = torch.randn(3, 5)
        optimizer.step(single, gradients[1].clone(), state, 0.1, 0.01)
        optimizer.step(rows, gradients, states, 0.1, 0.01)
    assert torch.equal(rows[1], single)


def test_nesterov_needs_momentum():
    with pytest.raises(ConfigError, match="nesterov needs momentum"):
        optimizers.parse({"name": "sgd", "nesterov": True})
