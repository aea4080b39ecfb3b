"""FedAvg against numbers worked out by hand."""

import pytest
import torch
from torch import nn

from mnemos.methods.exchange import Server, TrainReply, Weight
from mnemos.methods.fold import WeightedMean
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.vector import Layout
from support.bernoulli import bernoulli
from support.quadratic import near, play


def sigmoid(z):
    return 1 / (1 + torch.exp(torch.tensor(-z)).item())


def test_a_round_by_hand():
    """Two logits w = (a, b) on a constant input 1, so the softmax depends on z = a − b alone.

    For class 0 the gradient of the cross-entropy is (σ(z) − 1, 1 − σ(z)), for class 1 (σ(z), −σ(z)).
    Start at w = 0, η = 1, two full-batch steps a client.

    Client 0 (3 samples of class 0): g = (−½, ½) → w = (½, −½), z = 1; then s = σ(1):
    g = (s − 1, 1 − s) → w = (½ + 1 − s, −(½ + 1 − s)).
    Client 1 (1 sample of class 1): by symmetry w = (−(½ + 1 − s), ½ + 1 − s).
    Weighted by samples: ¾ − ¼ = ½ of client 0's model: w = (½ + 1 − s) · (½, −½).
    """
    server = bernoulli("fedavg", epochs=2)
    with server.open() as runner:
        server.advance(runner)
    expected = (0.5 + 1 - sigmoid(1.0)) * 0.5
    assert server.server.model.tolist() == pytest.approx([expected, -expected])
    server.close()


def test_uniform_weights_by_hand():
    """With equal weights the two symmetric models of the test above cancel out."""
    server = bernoulli({"name": "fedavg", "weighting": "uniform"}, epochs=2)
    with server.open() as runner:
        server.advance(runner)
    assert server.server.model.tolist() == pytest.approx([0.0, 0.0], abs=1e-7)
    server.close()


def test_three_rounds_by_hand():
    """h = (1, 3/2), a = (0, 16), η = ½, two steps, samples 3 : 1.

    One step takes y − a to (½, ¼) of it, two to (¼, 1/16): y₀ = ¼ x and y₁ = 16 + (x − 16) / 16 = 15 + x/16.
    Mean: x ← ¾ · ¼ x + ¼ (15 + x/16) = 13/64 x + 15/4.

    x = 0 → 15/4 → 195/256 + 960/256 = 1155/256 → 15015/16384 + 61440/16384 = 76455/16384.
    """
    played = play({"name": "fedavg"}, {"lr": 0.5, "steps": 2}, h=[1, 1.5], a=[0, 16], samples=[3, 1])
    assert played.models == near([15 / 4, 1155 / 256, 76455 / 16384])


def test_three_rounds_of_uniform_weights_by_hand():
    """The same with equal weights: x ← ½ (¼ x + 15 + x/16) = 5/32 x + 15/2.

    x = 0 → 15/2 → 75/64 + 480/64 = 555/64 → 2775/2048 + 15360/2048 = 18135/2048.
    """
    method = {"name": "fedavg", "weighting": "uniform"}
    played = play(method, {"lr": 0.5, "steps": 2}, h=[1, 1.5], a=[0, 16], samples=[3, 1])
    assert played.models == near([15 / 2, 555 / 64, 18135 / 2048])


def update(client, delta, buffers, samples, **change):
    vectors = {name: torch.tensor(value) for name, value in change.items()}
    return TrainReply(client, 1, samples, 1, 0.0, torch.tensor(delta), torch.tensor(buffers), vectors, {})


class Counting(nn.Linear):
    """A linear layer without bias, and with a buffer of one number."""

    def __init__(self, size):
        super().__init__(size, 1, bias=False)
        self.register_buffer("count", torch.zeros(1))


def test_fold_by_hand():
    """Weights 3 and 1: Δ = (3·(1, 2) + 1·(5, −2)) / 4 = (2, 1); buffers (3·4 + 1·8) / 4 = 5.

    Uploaded changes are averaged without weights: (1 + 3) / 2 = 2.
    """
    fold = WeightedMean(Layout.of(Counting(2)))
    fold.add(update(0, [1.0, 2.0], [4.0], 3, c=[1.0]), Weight.of(3.0))
    fold.add(update(1, [5.0, -2.0], [8.0], 1, c=[3.0]), Weight.of(1.0))
    result = fold.result()
    assert result.delta.tolist() == [2.0, 1.0]
    assert result.buffers.tolist() == [5.0]
    assert result.change["c"].tolist() == [2.0]
    assert result.clients == 2


def test_fold_of_several_at_once():
    """As in `test_fold_by_hand`, with a third client beside: (3·(1, 2) + 1·(5, −2) + 4·(0, 1)) / 8 = (1, 1).

    Buffers (3·4 + 1·8 + 4·1) / 8 = 3; uploaded changes (1 + 3 + 2) / 3 = 2.
    """
    fold = WeightedMean(Layout.of(Counting(2)))
    first, second = update(0, [1.0, 2.0], [4.0], 3, c=[1.0]), update(1, [5.0, -2.0], [8.0], 1, c=[3.0])
    fold.add_together([first, second], [3.0, 1.0])
    fold.add(update(2, [0.0, 1.0], [1.0], 4, c=[2.0]), Weight.of(4.0))
    result = fold.result()
    assert result.delta.tolist() == [1.0, 1.0]
    assert result.buffers.tolist() == [3.0]
    assert result.change["c"].tolist() == [2.0]
    assert result.clients == 3


def test_fold_with_a_weight_for_each_parameter():
    """First parameter weighted 1 : 3, second 1 : 0; buffers by samples, 1 : 1.

    Δ = ((1·1 + 3·5) / 4, (1·2 + 0) / 1) = (4, 2).
    """
    fold = WeightedMean(Layout.of(Counting(2)))
    fold.add(update(0, [1.0, 2.0], [4.0], 2), Weight(torch.tensor([1.0, 1.0]), 2.0))
    fold.add(update(1, [5.0, -2.0], [8.0], 2), Weight(torch.tensor([3.0, 0.0]), 2.0))
    assert fold.result().delta.tolist() == [4.0, 2.0]
    assert fold.result().buffers.tolist() == [6.0]


@pytest.mark.parametrize(("policy", "expected"), [("average", 5.0), ("server", 1.0)])
def test_buffer_policies(policy, expected):
    fold = WeightedMean(Layout.of(Counting(1)))
    fold.add(update(0, [1.0], [5.0], 2), Weight.of(2.0))
    method = FedAvg.parse({"buffers": policy})
    after = method.server_step(Server(torch.zeros(1), torch.tensor([1.0]), {}), fold.result())
    assert after.buffers.tolist() == [expected]
    assert after.model.tolist() == [1.0]
