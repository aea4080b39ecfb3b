import math

import pytest
import torch

from mnemos.objectives.ce import CrossEntropy


def test_value_and_gradient_by_hand():
    """Logits (log 1, log 2, log 5): softmax (1/8, 2/8, 5/8).

    For class 1 the loss is −log(2/8) = log 4 and the gradient softmax − one-hot = (1/8, −6/8, 5/8).
    """
    logits = torch.tensor([[math.log(1), math.log(2), math.log(5)]], requires_grad=True)
    losses = CrossEntropy()(logits, torch.tensor([1]), torch.full((3,), 1 / 3))
    assert losses.tolist() == pytest.approx([math.log(4)])
    losses.sum().backward()
    assert logits.grad[0].tolist() == pytest.approx([1 / 8, -6 / 8, 5 / 8])


def test_large_logits_stay_finite():
    logits = torch.tensor([[1e4, -1e4]], requires_grad=True)
    losses = CrossEntropy()(logits, torch.tensor([1]), torch.ones(2) / 2)
    assert losses.tolist() == pytest.approx([2e4])
