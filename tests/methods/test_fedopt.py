"""FedOpt against numbers worked out by hand (Reddi et al., 2021, algorithm 2; FedAvgM: Hsu et al., 2019)."""

import pytest
import torch

from support.quadratic import near, on_digits, play

STEP = {"lr": 0.5, "steps": 1}
"""With h = 1 a client goes half of the way to its a: Δ = ½ (a − x)."""


@pytest.mark.parametrize("name", ["fedopt", "fedavgm"])
def test_momentum_by_hand(name):
    """h = 1, a = (0, 64), samples 3 : 1, β = ¼, server rate ½.

    Δ = ¾ · ½ (0 − x) + ¼ · ½ (64 − x) = 8 − ½ x. v ← ¼ v + Δ, x ← x + ½ v.

    1. Δ = 8, v = 8, x = 4.
    2. Δ = 6, v = 2 + 6 = 8, x = 8.
    3. Δ = 4, v = 2 + 4 = 6, x = 11.
    """
    method = {"name": name, "server": {"name": "sgd", "lr": 0.5, "momentum": 0.25}}
    played = play(method, STEP, h=[1, 1], a=[0, 64], samples=[3, 1])
    assert played.models == near([4, 8, 11])
    assert played.at_server("sgd.velocity") == near([8, 8, 6])


def alone(server, points):
    """Client k is alone in round k and pulls to (points[k], 0): the second number must stay at 0."""
    method = {"name": "fedopt", "server": server}
    return play(method, STEP, h=[1, 1, 1], a=[[point, 0] for point in points], cohorts=[[0], [1], [2]])


def test_adagrad_by_hand():
    """τ = 3, η = 44, no first momentum; the clients' a are (8, −2, 157), one a round.

    v ← v + Δ² from v = τ² = 9, and x ← x + 44 Δ / (√v + 3), where Δ = ½ (a − x).

    1. Δ = ½ · 8 = 4, v = 9 + 16 = 25, x = 44 · 4/8 = 22.
    2. Δ = ½ (−2 − 22) = −12, v = 25 + 144 = 169, x = 22 − 44 · 12/16 = −11.
    3. Δ = ½ (157 + 11) = 84, v = 169 + 7056 = 7225, x = −11 + 44 · 84/88 = 31.

    The second number has Δ = 0 and v = 9.
    """
    played = alone({"name": "adagrad", "lr": 44, "tau": 3}, [8, -2, 157])
    assert played.models == near([22, 0, -11, 0, 31, 0])
    assert played.at_server("adaptive.m") == near([4, 0, -12, 0, 84, 0])
    assert played.at_server("adaptive.v") == near([25, 9, 169, 9, 7225, 9])


def test_adam_by_hand():
    """β₁ = ¼, β₂ = ¾, τ = 8, η = 56; the clients' a are (4, −202/5, −67/5), one a round.

    m ← ¼ m + ¾ Δ from 0, v ← ¾ v + ¼ Δ² from τ² = 64, x ← x + 56 m / (√v + 8), where Δ = ½ (a − x).
    There is no bias correction.

    1. Δ = 2, m = 3/2, v = 48 + 1 = 49, x = 56 · (3/2)/15 = 28/5.
    2. Δ = ½ (−202/5 − 28/5) = −23, m = 3/8 − 69/4 = −135/8, v = 147/4 + 529/4 = 169,
       x = 28/5 − 56 · (135/8)/21 = 28/5 − 45 = −197/5.
    3. Δ = ½ (−67/5 + 197/5) = 13, m = −135/32 + 39/4 = 177/32, v = 169,
       x = −197/5 + 56 · (177/32)/21 = −197/5 + 59/4 = −493/20.

    The second number has Δ = 0, so its v is ¾ of the last: 48, 36, 27.
    """
    server = {"name": "adam", "lr": 56, "tau": 8, "beta1": 0.25, "beta2": 0.75}
    played = alone(server, [4, -202 / 5, -67 / 5])
    assert played.models == near([28 / 5, 0, -197 / 5, 0, -493 / 20, 0])
    assert played.at_server("adaptive.m") == near([3 / 2, 0, -135 / 8, 0, 177 / 32, 0])
    assert played.at_server("adaptive.v") == near([49, 48, 169, 36, 169, 27])


def test_yogi_by_hand():
    """β₁ = ⅝, β₂ = ¾, τ = 15, η = 40; the clients' a are (80, 43, −42), one a round.

    m ← ⅝ m + ⅜ Δ from 0, v ← v − ¼ Δ² sign(v − Δ²) from τ² = 225, x ← x + 40 m / (√v + 15), where
    Δ = ½ (a − x).

    1. Δ = 40, m = 15. 225 < 1600: v = 225 + 400 = 625. x = 40 · 15/40 = 15.
    2. Δ = ½ (43 − 15) = 14, m = 75/8 + 42/8 = 117/8. 625 > 196: v = 625 − 49 = 576.
       x = 15 + 40 · (117/8)/39 = 30.
    3. Δ = ½ (−42 − 30) = −36, m = 585/64 − 864/64 = −279/64. 576 < 1296: v = 576 + 324 = 900.
       x = 30 − 40 · (279/64)/45 = 30 − 31/8 = 209/8.

    The second number has Δ = 0 and v = 225.
    """
    server = {"name": "yogi", "lr": 40, "tau": 15, "beta1": 0.625, "beta2": 0.75}
    played = alone(server, [80, 43, -42])
    assert played.models == near([15, 0, 30, 0, 209 / 8, 0])
    assert played.at_server("adaptive.m") == near([15, 0, 117 / 8, 0, -279 / 64, 0])
    assert played.at_server("adaptive.v") == near([625, 225, 576, 225, 900, 225])


def test_a_plain_server_is_fedavg():
    """Server rate 1 and no momentum; another rate is something else."""
    fedavg = on_digits("fedavg", lr=0.1)
    plain = on_digits({"name": "fedopt", "server": {"name": "sgd", "lr": 1, "momentum": 0}}, lr=0.1)
    assert torch.equal(torch.stack(plain), torch.stack(fedavg))
    slow = on_digits({"name": "fedopt", "server": {"name": "sgd", "lr": 0.5}}, rounds=1, lr=0.1)
    assert not torch.allclose(slow[0], fedavg[0], atol=1e-4)
