"""Logits calibration (FedLC)."""

import math

import pytest
import torch

from mnemos.objectives.fedlc import LogitsCalibration


@pytest.mark.parametrize(
    ("denominator", "tau", "label", "value", "gradient"),
    [
        ("all", 2, 0, 23 / 4, [-19 / 23, 16 / 23, 3 / 23]),
        ("all", 2, 1, 23 / 16, [4 / 23, -7 / 23, 3 / 23]),
        ("all", 4, 0, 147 / 16, [-131 / 147, 128 / 147, 3 / 147]),
        ("others", 2, 0, 19 / 4, [-1, 16 / 19, 3 / 19]),
        ("others", 2, 1, 7 / 16, [4 / 7, -1, 3 / 7]),
        ("others", 0, 1, 2, [1 / 4, -1, 3 / 4]),
    ],
)
def test_values_and_gradients_by_hand(solve, denominator, tau, label, value, gradient):
    """Logits (log 1, log 2, log 3), counts (1, 16, 0), missing = 1/16: n^(−1/4) = (1, 1/2, 2).

    The table has τ in units of log 2, and exp of the losses. exp(f_c − τ n_c^(−1/4)) is
    (1/2^τ, 2/2^(τ/2), 3/2^(2τ)): for τ = 2, (1/4, 1, 3/16) = (4, 16, 3)/16; for τ = 4,
    (1/16, 1/2, 3/256) = (16, 128, 3)/256; for τ = 0, (1, 2, 3).

    With all classes in the denominator, the gradient is softmax − one-hot. Without the sample's own class, it
    is −1 there, whatever the logits, and the softmax of the others elsewhere; the loss can be negative.
    """
    objective = LogitsCalibration(tau=tau * math.log(2), missing=1 / 16, denominator=denominator)
    loss, found = solve(objective, [1, 2, 3], label, [1, 16, 0])
    assert loss == pytest.approx(math.log(value), abs=1e-6)
    assert found == pytest.approx(gradient, abs=1e-6)


def test_defaults_by_hand():
    """τ = 1 and missing = 10⁻⁸: counts (1, 16, 0) have margins (1, 1/2, 100), and y is in the denominator.

    Logits (1, 1/2, 100 + log 2) less the margins are (0, 0, log 2): softmax (1, 1, 2)/4. Class 0: −log 1/4.
    """
    logits = torch.tensor([[1.0, 0.5, 100 + math.log(2)]], dtype=torch.float64, requires_grad=True)
    loss = LogitsCalibration()(logits, torch.tensor([0]), torch.tensor([1.0, 16.0, 0.0])).sum()
    loss.backward()
    assert loss.item() == pytest.approx(math.log(4), abs=1e-4)
    assert logits.grad[0].tolist() == pytest.approx([-3 / 4, 1 / 4, 2 / 4], abs=1e-4)
