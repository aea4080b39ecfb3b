"""FedDyn against numbers worked out by hand (Acar et al., 2021, algorithm 1)."""

import torch

from support.quadratic import near, on_digits, play

H = "feddyn.h"


def feddyn(alpha):
    return {"name": "feddyn", "correction": {"name": "feddyn", "alpha": alpha}}


def test_three_rounds_by_hand():
    """Curvatures (2, 6), a = (0, 64), α = 2, η = ⅛, two steps, samples 1 : 3, which play no part.

    Client k minimises Lₖ(θ) − hₖ θ + (α/2) (θ − x)²: θ ← θ − ⅛ Gₖ with Gₖ = gₖ(θ) − hₖ + 2 (θ − x). A step
    changes Gₖ by −⅛ (curvature + 2) Gₖ: the second is (½, 0) of the first. So with Gₖ = gₖ(x) − hₖ,
    θ₀ = x − ⅛ (1 + ½) G₀ = x − 3/16 G₀ and θ₁ = x − ⅛ G₁, which is client 1's exact minimum.
    hₖ ← hₖ − 2 (θₖ − x), h ← h − 2 · ½ Σ (θₖ − x), x ← mean θₖ − h/2. g = (2 x, 6 (x − 64)).

    1. x = 0: G = (0, −384), θ = (0, 48). hₖ ← (0, −96), h ← −48, x ← 24 + 24 = 48.
    2. g = (96, −96), G = (96, 0), θ = (48 − 18, 48) = (30, 48). hₖ ← (36, −96), h ← −48 + 18 = −30,
       x ← 39 + 15 = 54.
    3. g = (108, −60), G = (72, 36), θ = (54 − 27/2, 54 − 9/2) = (81/2, 99/2). hₖ ← (36 + 27, −96 + 9)
       = (63, −87), h ← −30 + 18 = −12, x ← 45 + 6 = 51.

    As it should be at an exact minimum, h₁ is the gradient there: 6 (48 − 64) = −96, 6 (99/2 − 64) = −87.
    """
    played = play(feddyn(2), {"lr": 0.125, "steps": 2, "batch": 4}, h=[2, 6], a=[0, 64], samples=[1, 3])
    assert played.models == near([48, 54, 51])
    assert played.at_client(0, H) == near([0, 36, 63])
    assert played.at_client(1, H) == near([-96, -96, -87])
    assert played.at_server(H) == near([-48, -30, -12])


def test_some_of_the_clients_by_hand():
    """Two clients of curvature 2, one a round: a = (0, 16), α = 2, η = ¼, one step.

    The step ends at the exact minimum: 2 (θ − a) − hₖ + 2 (θ − x) = 0 at θ = x − ¼ (2 (x − a) − hₖ)
    = ½ (x + a) + ¼ hₖ. The server's sum runs over the cohort and is divided by all m = 2 clients:
    h ← h − 2 · ½ (θₖ − x) = h − (θₖ − x), x ← θₖ − h/2.

    1. Client 1: θ = 8, h₁ ← −16, h ← −8, x ← 8 + 4 = 12.
    2. Client 0: θ = 6, h₀ ← −2 · −6 = 12, h ← −8 + 6 = −2, x ← 6 + 1 = 7.
    3. Client 1: θ = 23/2 − 4 = 15/2, h₁ ← −16 − 1 = −17, h ← −2 − ½ = −5/2, x ← 15/2 + 5/4 = 35/4.
    """
    played = play(feddyn(2), {"lr": 0.25, "steps": 1}, h=[2, 2], a=[0, 16], cohorts=[[1], [0], [1]])
    assert played.models == near([12, 7, 35 / 4])
    assert played.at_client(0, H) == near([0, 12, 12])
    assert played.at_client(1, H) == near([-16, -16, -17])
    assert played.at_server(H) == near([-8, -2, -5 / 2])


def test_without_regularisation_it_is_fedavg():
    """α = 0, both with equal weights; and with α > 0 it is something else."""
    fedavg = on_digits({"name": "fedavg", "weighting": "uniform"}, lr=0.1)
    assert torch.equal(torch.stack(on_digits(feddyn(0), lr=0.1)), torch.stack(fedavg))
    assert not torch.allclose(on_digits(feddyn(0.1), lr=0.1)[0], fedavg[0], atol=1e-4)
