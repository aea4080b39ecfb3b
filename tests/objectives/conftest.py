"""What the tests of the losses share."""

import pytest
import torch


@pytest.fixture
def solve():
    """A function that gives one sample's (loss, gradient at the logits); the logits are log `odds`."""

    def solve(objective, odds, label, counts):
        logits = torch.tensor([odds], dtype=torch.float64).log().requires_grad_()
        losses = objective(logits, torch.tensor([label]), torch.tensor(counts, dtype=torch.float32))
        assert losses.shape == (1,)
        losses.sum().backward()
        return losses.item(), logits.grad[0].tolist()

    return solve
