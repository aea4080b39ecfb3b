"""Restricted softmax (FedRS)."""

import math

import pytest
import torch
from torch.func import grad_and_value

from mnemos.objectives.fedrs import RestrictedSoftmax
from mnemos.objectives.masked_ce import MaskedCrossEntropy


@pytest.mark.parametrize(
    ("soft", "odds", "label", "value", "gradient"),
    [
        (False, [1, 4, 3], 2, 2, [1 / 6, 1 / 6, -3 / 6]),
        (False, [1, 4, 3], 0, 6, [-5 / 6, 1 / 6, 3 / 6]),
        (True, [16, 4, 3], 2, 13 / 3, [6 / 13, 1 / 13, -10 / 13]),
        (True, [16, 4, 3], 0, 13 / 8, [-15 / 52, 1 / 13, 3 / 13]),
    ],
)
def test_values_and_gradients_by_hand(solve, soft, odds, label, value, gradient):
    """Counts (2, 0, 4) and the default α = 1/2; the table has exp of the logits and of the losses.

    Hard: scales (1, 1/2, 1), so logits (log 1, log 4, log 3) become (log 1, log 2, log 3): softmax
    (1, 2, 3)/6. Soft: 1/2 + 1/2 · (2, 0, 4)/4 = (3/4, 1/2, 1), so logits (log 16, log 4, log 3) become
    (log 8, log 2, log 3): softmax (8, 2, 3)/13. The gradient is α_c (softmax − one-hot): in the last row
    (−5/13 · 3/4, 2/13 · 1/2, 3/13).
    """
    loss, found = solve(RestrictedSoftmax(soft=soft), odds, label, [2, 0, 4])
    assert loss == pytest.approx(math.log(value))
    assert found == pytest.approx(gradient)


def test_alpha_zero_is_masked_cross_entropy():
    """0 · f_c = 0: absent classes are constants in the sum."""
    logits = torch.randn(30, 4, generator=torch.Generator().manual_seed(2))
    labels, counts = torch.tensor([0, 2, 3]).repeat(10), torch.tensor([3.0, 0.0, 1.0, 8.0])
    (one, loss), (two, masked) = (
        grad_and_value(lambda logits, of=objective: of(logits, labels, counts).sum())(logits)
        for objective in (RestrictedSoftmax(alpha=0), MaskedCrossEntropy())
    )
    assert torch.equal(loss, masked)
    assert torch.equal(one, two)
