"""SCAFFOLD against numbers worked out by hand (Karimireddy et al., 2020, algorithm 1)."""

import pytest
import torch

from support.quadratic import near, on_digits, play

C = "scaffold.c"


def scaffold(option, lr=1.0, **changes):
    """The paper's mean of the clients' changes has no weights."""
    correction = {"name": "scaffold", "option": option}
    server = {"name": "sgd", "lr": lr}
    return {"name": "scaffold", "correction": correction, "server": server, "weighting": "uniform", **changes}


def test_option_one_by_hand():
    """h = (2, 6), a = (0, 16), η = ¼, K = 2 steps, server step 3/2, all clients, samples 1 : 3.

    gᵢ(y) = hᵢ (y − aᵢ): g₀ = 2 y, g₁ = 6 (y − 16). A step is y ← y − ¼ Gᵢ with Gᵢ = gᵢ(y) − cᵢ + c. It
    changes Gᵢ by −¼ hᵢ Gᵢ, so the second Gᵢ is (½, −½) of the first. With Gᵢ the first, at x:
    y₀ = x − ¼ (1 + ½) G₀ = x − ⅜ G₀ and y₁ = x − ¼ (1 − ½) G₁ = x − ⅛ G₁.
    Option I: cᵢ⁺ = gᵢ(x). Server: x ← x + 3/2 · ½ (Δ₀ + Δ₁) and, as all clients take part, c ← ½ (c₀⁺ + c₁⁺).

    1. x = 0, c = cᵢ = 0. G = g = (0, −96). Δ = (0, 12). x ← ¾ · 12 = 9. cᵢ ← (0, −96), c ← −48.
    2. g = (18, −42), G = (18 − 0 − 48, −42 + 96 − 48) = (−30, 6). Δ = (45/4, −3/4).
       x ← 9 + ¾ · 42/4 = 135/8. cᵢ ← (18, −42), c ← −12.
    3. g = (135/4, 21/4), G = (135/4 − 18 − 12, 21/4 + 42 − 12) = (15/4, 141/4). Δ = (−45/32, −141/32).
       x ← 135/8 − ¾ · 186/32 = 1080/64 − 279/64 = 801/64. cᵢ ← (135/4, 21/4), c ← 39/2.
    """
    played = play(
        scaffold("I", 1.5), {"lr": 0.25, "steps": 2, "batch": 2}, h=[2, 6], a=[0, 16], samples=[1, 3]
    )
    assert played.models == near([9, 135 / 8, 801 / 64])
    assert played.at_client(0, C) == near([0, 18, 135 / 4])
    assert played.at_client(1, C) == near([-96, -42, 21 / 4])
    assert played.at_server(C) == near([-48, -12, 39 / 2])


def test_option_two_by_hand():
    """The problem of option I with cᵢ⁺ = cᵢ − c + (x − yᵢ) / (K η), where K η = ½.

    As there y₀ = x − ⅜ G₀ and y₁ = x − ⅛ G₁ with Gᵢ = gᵢ(x) − cᵢ + c. So cᵢ⁺ = cᵢ − c + (¾ G₀, ¼ G₁).

    1. x = 0, c = cᵢ = 0. G = (0, −96). Δ = (0, 12). x ← ¾ · 12 = 9. cᵢ ← (0, −24), c ← −12.
    2. g = (18, −42), G = (18 − 0 − 12, −42 + 24 − 12) = (6, −30). Δ = (−9/4, 15/4).
       x ← 9 + ¾ · 6/4 = 81/8. c₀ ← 0 + 12 + 9/2 = 33/2, c₁ ← −24 + 12 − 15/2 = −39/2, c ← −3/2.
    3. g = (81/4, −141/4), G = (81/4 − 33/2 − 3/2, −141/4 + 39/2 − 3/2) = (9/4, −69/4).
       Δ = (−27/32, 69/32). x ← 81/8 + ¾ · 42/32 = 648/64 + 63/64 = 711/64.
       c₀ ← 33/2 + 3/2 + 27/16 = 315/16, c₁ ← −39/2 + 3/2 − 69/16 = −357/16, c ← −21/16.
    """
    played = play(
        scaffold("II", 1.5), {"lr": 0.25, "steps": 2, "batch": 2}, h=[2, 6], a=[0, 16], samples=[1, 3]
    )
    assert played.models == near([9, 81 / 8, 711 / 64])
    assert played.at_client(0, C) == near([0, 33 / 2, 315 / 16])
    assert played.at_client(1, C) == near([-24, -39 / 2, -357 / 16])
    assert played.at_server(C) == near([-12, -3 / 2, -21 / 16])


def test_some_of_the_clients_by_hand():
    """Option II, N = 4 clients of h = 2, a = (16, 48, 32, 0), |S| = 2, η = ¼, K = 2, server step 1.

    As above with the second G half of the first: Δᵢ = −⅜ Gᵢ and cᵢ⁺ = cᵢ − c + ¾ Gᵢ, gᵢ = 2 (x − aᵢ).
    x ← x + mean Δ, and c ← c + |S|/N · mean (cᵢ⁺ − cᵢ) = c + ¼ Σ (cᵢ⁺ − cᵢ) over the cohort.

    1. S = {0, 1}: x = 0, G = (−32, −96). Δ = (12, 36), x ← 24. c₀ ← −24, c₁ ← −72, c ← ¼ · −96 = −24.
    2. S = {2, 3}: g = (−16, 48), G = (−16 − 24, 48 − 24) = (−40, 24). Δ = (15, −9), x ← 27.
       c₂ ← 24 − 30 = −6, c₃ ← 24 + 18 = 42, c ← −24 + ¼ · 36 = −15.
    3. S = {0, 2}: g = (22, −10), G = (22 + 24 − 15, −10 + 6 − 15) = (31, −19). Δ = (−93/8, 57/8),
       x ← 27 − 36/16 = 99/4. c₀ ← −24 + 15 + 93/4 = 57/4, c₂ ← −6 + 15 − 57/4 = −21/4,
       c ← −15 + ¼ (57/4 + 24 − 21/4 + 6) = −15 + 39/4 = −21/4.
    """
    played = play(
        scaffold("II"),
        {"lr": 0.25, "steps": 2},
        h=[2, 2, 2, 2],
        a=[16, 48, 32, 0],
        cohorts=[[0, 1], [2, 3], [0, 2]],
    )
    assert played.models == near([24, 27, 99 / 4])
    assert played.at_client(0, C) == near([-24, -24, 57 / 4])
    assert played.at_client(1, C) == near([-72, -72, -72])
    assert played.at_client(2, C) == near([0, -6, -21 / 4])
    assert played.at_client(3, C) == near([0, 42, 42])
    assert played.at_server(C) == near([-24, -15, -21 / 4])


def test_option_one_is_the_mean_over_samples():
    """Client 0 has samples of gradient 3, 3 and −12 at x = 0, in batches of two and one, client 1 one of −12.

    c₀⁺ = (3 + 3 − 12) / 3 = −2, however they are dealt to batches; the mean of the batches' means would be
    −9/2 or −3/4. c ← ½ (−2 − 12) = −7.
    """
    played = play(
        scaffold("I"),
        {"lr": 0.25, "epochs": 2, "batch": 2},
        h=[1, 1],
        a=[-3, 12],
        labels=[[0, 0, 1], [1]],
        rounds=1,
    )
    assert played.at_client(0, C) == near([-2])
    assert played.at_client(1, C) == near([-12])
    assert played.at_server(C) == near([-7])


def test_with_a_proximal_term_by_hand():
    """Option II with the term ½ μ (y − x)²: h = (1, 5), a = (0, 16), μ = 1, η = ¼, K = 2, server step 1.

    A step is y ← y − ¼ Gᵢ with Gᵢ = hᵢ (y − aᵢ) + (y − x) − cᵢ + c. It changes Gᵢ by −¼ (hᵢ + 1) Gᵢ, so the
    second is (½, −½) of the first, which doesn't feel the term: Gᵢ = gᵢ − cᵢ + c, g = (x, 5 (x − 16)).
    Δ = (−⅜ G₀, −⅛ G₁) and cᵢ⁺ = cᵢ − c + (¾ G₀, ¼ G₁).

    1. x = 0. G = (0, −80). Δ = (0, 10), x ← 5. cᵢ ← (0, −20), c ← −10.
    2. g = (5, −55), G = (5 − 0 − 10, −55 + 20 − 10) = (−5, −45). Δ = (15/8, 45/8), x ← 5 + 60/16 = 35/4.
       c₀ ← 0 + 10 − 15/4 = 25/4, c₁ ← −20 + 10 − 45/4 = −85/4, c ← −15/2.
    3. g = (35/4, −145/4), G = (35/4 − 25/4 − 15/2, −145/4 + 85/4 − 15/2) = (−5, −45/2).
       Δ = (15/8, 45/16), x ← 35/4 + 75/32 = 355/32.
       c₀ ← 25/4 + 15/2 − 15/4 = 10, c₁ ← −85/4 + 15/2 − 45/8 = −155/8, c ← −75/16.
    """
    method = scaffold("II", terms=[{"name": "proximal", "mu": 1}])
    played = play(method, {"lr": 0.25, "steps": 2}, h=[1, 5], a=[0, 16])
    assert played.models == near([5, 35 / 4, 355 / 32])
    assert played.at_client(0, C) == near([0, 25 / 4, 10])
    assert played.at_client(1, C) == near([-20, -85 / 4, -155 / 8])
    assert played.at_server(C) == near([-10, -15 / 2, -75 / 16])


@pytest.mark.parametrize("option", ["I", "II"])
def test_the_first_round_is_fedavg(option):
    """All control variates are 0 in the first round, and no longer in the second."""
    first, second = on_digits(scaffold(option, weighting="samples"), lr=0.1)
    fedavg = on_digits("fedavg", lr=0.1)
    assert torch.equal(first, fedavg[0])
    assert not torch.allclose(second, fedavg[1], atol=1e-4)


def test_option_two_with_rates_that_change_by_hand():
    """h = 1, a = 16, two epochs of one step, with η = ½ and then ¼.

    y = 0 → 0 + ½ · 16 = 8 → 8 + ¼ · 8 = 10. The mean gradient, weighed by the rates that were taken, is
    (½ · −16 + ¼ · −8) / (½ + ¼) = −10 / ¾ = −40/3, which is (x − y) over the sum of the rates.
    """
    schedule = {"name": "step", "size": 1, "gamma": 0.5, "over": "epochs"}
    local = {"lr": 0.5, "epochs": 2, "schedule": schedule}
    played = play(scaffold("II"), local, h=[1], a=[16], rounds=1)
    assert played.models == near([10])
    assert played.at_client(0, C) == near([-40 / 3])
