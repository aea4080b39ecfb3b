"""Cross-entropy, and when the other losses are the same."""

import math

import pytest
import torch
from torch.func import grad

from mnemos.objectives.ce import CrossEntropy
from mnemos.objectives.fedlc import LogitsCalibration
from mnemos.objectives.fedrs import RestrictedSoftmax
from mnemos.objectives.masked_ce import MaskedCrossEntropy
from mnemos.objectives.tce import TruncatedCrossEntropy
from mnemos.objectives.wsm import BalancedSoftmax, ReweightedSoftmax


@pytest.mark.parametrize("counts", [[1, 1, 1], [7, 0, 2]])
def test_value_and_gradient_by_hand(solve, counts):
    """Logits (log 1, log 2, log 5): softmax (1/8, 2/8, 5/8), whatever the client holds.

    For class 1 the loss is −log(2/8) = log 4 and the gradient softmax − one-hot = (1/8, −6/8, 5/8).
    """
    loss, gradient = solve(CrossEntropy(), [1, 2, 5], 1, counts)
    assert loss == pytest.approx(math.log(4))
    assert gradient == pytest.approx([1 / 8, -6 / 8, 5 / 8])


def test_large_logits_by_hand():
    """Logits (10⁴, −10⁴), class 1: −(−10⁴) + log(e^10⁴ + e^−10⁴) = 2·10⁴, and the softmax is (1, 0)."""
    logits = torch.tensor([[1e4, -1e4]], requires_grad=True)
    losses = CrossEntropy()(logits, torch.tensor([1]), torch.ones(2))
    losses.sum().backward()
    assert losses.tolist() == [2e4]
    assert logits.grad.tolist() == [[1.0, -1.0]]


EQUAL, UNEQUAL, ABSENT = [5, 5, 5, 5], [1, 2, 30, 400], [3, 0, 5, 0]


@pytest.mark.parametrize(
    ("objective", "counts", "shift"),
    [
        (ReweightedSoftmax(), EQUAL, -math.log(4)),
        (BalancedSoftmax(), EQUAL, 0),
        (LogitsCalibration(), EQUAL, 0),
        (RestrictedSoftmax(soft=True), EQUAL, 0),
        (TruncatedCrossEntropy(), UNEQUAL, 0),
        (MaskedCrossEntropy(), UNEQUAL, 0),
        (RestrictedSoftmax(), UNEQUAL, 0),
        (LogitsCalibration(tau=0), ABSENT, 0),
        (RestrictedSoftmax(alpha=1), ABSENT, 0),
        (RestrictedSoftmax(alpha=1, soft=True), ABSENT, 0),
    ],
)
def test_where_another_loss_is_cross_entropy(objective, counts, shift):
    """Same gradient, and the same value but for a constant.

    Equal counts, β_c = 1/C: wsm is −f_y + log(Σ exp f_c / C) = CE − log C. In balanced softmax, −log β_y
    takes the log C back. Equal margins or scales of 1 change nothing. Losses that ask only which classes a
    client holds are cross-entropy as soon as it holds all; τ = 0 and α = 1 switch fedlc and fedrs off.
    """
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(50, 4, generator=generator, dtype=torch.float64)
    labels, counts = torch.arange(50) % 4, torch.tensor(counts, dtype=torch.float32)
    found, expected = objective(logits, labels, counts), CrossEntropy()(logits, labels, counts)
    assert torch.allclose(found, expected + shift, atol=1e-6)
    gradient = grad(lambda logits: objective(logits, labels, counts).sum())(logits)
    assert torch.allclose(gradient, logits.softmax(1) - torch.eye(4)[labels], atol=1e-6)
