"""Precision weighting against numbers worked out by hand."""

import pytest
import torch

from support.quadratic import digits, near, play


def test_a_round_by_hand():
    """Client 0 (h = 1, a = 2) and client 1 (h = 2, a = −1), one step of η = ½ from 0.

    Client 0 goes to 1, where its gradient is 1 (1 − 2) = −1: v = 1. Client 1 goes to ½ · 2 · (−1) = −1, where
    its gradient is 0: v = 0. With ε = 1, α is 1/2 : 1/1, so the model becomes (½ · 1 − 1) / 1.5 = −1/3.
    """
    found = play(
        {"name": "precision", "weighting": {"name": "precision", "epsilon": 1.0}},
        {"steps": 1, "lr": 0.5},
        h=[1, 2],
        a=[2.0, -1.0],
        rounds=1,
    )
    assert found.models == near([-1 / 3])


@pytest.mark.parametrize(("batch", "variance", "gradients"), [(1, 15.0, 9.0), (3, 9.0, 3.0)])
def test_variance_is_of_batches_and_uncentred(batch, variance, gradients):
    """Client 0 has samples with h = 1 and a = 0, 3, 6, and so small a rate that it stays at 0 but for η Σ g.

    One by one, its gradients are 0, −3, −6: v = (0 + 9 + 36) / 3 = 15 (around their mean it would be 6). All
    in one batch, g = −3: v = 9. Client 1 has h = 0, so v = 0 and it stays: with ε = 1 client 0's share is
    1 / (v + 2).
    """
    rate = 1e-5
    found = play(
        {"name": "precision", "weighting": {"name": "precision", "epsilon": 1.0}},
        {"epochs": 1, "batch": batch, "lr": rate},
        h=[1, 1, 1, 0],
        a=[0.0, 3.0, 6.0, 0.0],
        labels=[[0, 1, 2], [3]],
        rounds=1,
    )
    assert found.models == pytest.approx([rate * gradients / (variance + 2)], rel=1e-3)


def test_it_is_not_fedavg_on_real_data():
    _, weighted = digits({"name": "precision"}, 1, local={"epochs": 1})
    _, mean = digits({"name": "fedavg"}, 1, local={"epochs": 1})
    assert torch.isfinite(weighted[0]).all()
    assert not torch.allclose(weighted[0], mean[0])


@pytest.mark.parametrize("engine", ["threads", "vmap"])
def test_engines_agree(engine):
    local = {"epochs": 2, "batch": 16}
    _, serial = digits("precision", 2, local=local)
    _, other = digits("precision", 2, local=local, engine=engine)
    torch.testing.assert_close(other[-1], serial[-1], rtol=1e-3, atol=1e-4)
