"""Re-weighted softmax and balanced softmax: equation 4 of WSM, and why the two train alike."""

import math

import pytest
import torch
from torch.func import grad

from mnemos.objectives.wsm import BalancedSoftmax, ReweightedSoftmax


@pytest.mark.parametrize(
    ("counts", "label", "wsm", "balanced", "gradient"),
    [
        ([3, 2, 1], 1, 5 / 6, 5 / 2, [3 / 10, -6 / 10, 3 / 10]),
        ([2, 0, 4], 2, 7 / 9, 7 / 6, [1 / 7, 0, -1 / 7]),
        ([2, 0, 4], 0, 7 / 3, 7, [-6 / 7, 0, 6 / 7]),
    ],
)
def test_values_and_gradient_by_hand(solve, counts, label, wsm, balanced, gradient):
    """Logits (log 1, log 2, log 3); the losses are the logarithms of the table's fractions.

    Counts (3, 2, 1): β = (3/6, 2/6, 1/6), β_c exp f_c = (3, 4, 3)/6, sum 10/6. For class 1, wsm is
    log(10/6) − log 2 = log 5/6, balanced −log(4/10), the gradient (3, 4, 3)/10 − (0, 1, 0).

    Counts (2, 0, 4): β = (1/3, 0, 2/3), β_c exp f_c = (1, 0, 6)/3, sum 7/3. For class 2, wsm is
    log(7/3) − log 3 = log 7/9, which is negative, and balanced −log(6/7); for class 0, log(7/3) − log 1 and
    −log(1/7). The gradients are (1, 0, 6)/7 less the one-hot label.
    """
    for objective, value in ((ReweightedSoftmax(), wsm), (BalancedSoftmax(), balanced)):
        loss, found = solve(objective, [1, 2, 3], label, counts)
        assert loss == pytest.approx(math.log(value), abs=1e-6)
        assert found == pytest.approx(gradient, abs=1e-6)


def test_both_have_the_gradient_of_the_prior_corrected_softmax():
    """softmax(f + log n) − one-hot, with a client's own counts: wsm − balanced = log β_y has no gradient."""
    generator = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(60, 5, generator=generator, dtype=torch.float64)
    counts = torch.tensor([1.0, 70.0, 0.0, 9.0, 2000.0])
    labels = torch.tensor([0, 1, 3, 4]).repeat(15)
    odds = counts * logits.exp()
    expected = odds / odds.sum(1, keepdim=True) - torch.eye(5)[labels]
    for objective in (ReweightedSoftmax(), BalancedSoftmax()):
        gradient = grad(lambda logits, of=objective: of(logits, labels, counts).sum())(logits)
        assert torch.allclose(gradient, expected, atol=1e-6)
    difference = ReweightedSoftmax()(logits, labels, counts) - BalancedSoftmax()(logits, labels, counts)
    assert torch.allclose(difference, (counts / 2080)[labels].double().log(), atol=1e-6)
