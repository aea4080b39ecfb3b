"""FedAsync and FedBuff against numbers worked out by hand.

With h = 1, η = ½ and one step, a client that is sent x has y = (x + a) / 2, and Δ = (a − x) / 2.
"""

import pytest

from support.quadratic import near, play

LOCAL = {"lr": 0.5, "steps": 1}


def test_fedasync_by_hand():
    """a = (8, 16); client 1 takes twice as long; α = ½, s(τ) = 1 / (1 + τ).

    At time 0 both are sent 0.
    Time 1: client 0 has y = 4, τ = 0: x ← ½ · 0 + ½ · 4 = 2, which it is sent.
    Time 2: client 1, who was sent 0 and left first, has y = 8, τ = 1: x ← ¾ · 2 + ¼ · 8 = 7/2, is sent that.
    Time 2: client 0 has y = (2 + 8) / 2 = 5, τ = 1: x ← ¾ · 7/2 + ¼ · 5 = 31/8, which it is sent.
    Time 3: client 0 has y = (31/8 + 8) / 2 = 95/16, τ = 0: x ← ½ · 31/8 + ½ · 95/16 = 157/32.
    """
    clock = {
        "name": "fedasync",
        "mixing": 0.5,
        "staleness": {"name": "polynomial", "a": 1},
        "speeds": {"times": {1: 2}},
    }
    played = play({"name": "fedavg"}, LOCAL, h=[1, 1], a=[8, 16], rounds=4, clock=clock)
    assert played.models == near([2, 7 / 2, 31 / 8, 157 / 32])


def test_changes_instead_of_models_by_hand():
    """The same with x ← x + α s(τ) Δ: 0 + ½ · 4 = 2; then 2 + ¼ · 8 = 4, where FedAsync has 7/2.

    Then Δ = (8 − 2) / 2 = 3, τ = 1: 4 + ¾ = 19/4.
    """
    clock = {
        "name": "fedasync",
        "applies": "change",
        "mixing": 0.5,
        "staleness": {"name": "polynomial", "a": 1},
        "speeds": {"times": {1: 2}},
    }
    played = play({"name": "fedavg"}, LOCAL, h=[1, 1], a=[8, 16], rounds=3, clock=clock)
    assert played.models == near([2, 4, 19 / 4])


def test_fedbuff_by_hand():
    """a = (8, 16, −8), times (1, 2, 3), a buffer of 2, η = ½ at the server, s(τ) = (1 + τ)^−½.

    With two clients a buffer of two would be full only when both are back: it takes a third to be late.

    At time 0 all are sent 0. Clients 0 and 1 fill the buffer at time 2: Δ = 4 and 8, both with τ = 0:
    x ← 0 + ½ · 6 = 3. Both are sent 3, and are due at 3 and 4.
    At time 3 come client 2, Δ = −4 and τ = 1, and client 0, Δ = (8 − 3) / 2 = 5/2 and τ = 0:
    x ← 3 + ½ · (5/2 − 4/√2) / 2 = 29/8 − √2/2.
    """
    clock = {"name": "fedbuff", "buffer": 2, "concurrency": 3, "speeds": {"times": {1: 2, 2: 3}}}
    method = {"name": "fedavg", "server": {"name": "sgd", "lr": 0.5}}
    played = play(method, LOCAL, h=[1, 1, 1], a=[8, 16, -8], rounds=2, clock=clock)
    assert played.models == near([3, 29 / 8 - 2**-0.5])


def test_staleness_comes_on_top_of_the_weighting():
    """The same, with 3 samples at client 2: x ← 3 + ½ · (1 · 5/2 − 3 · 4/√2) / 4."""
    clock = {"name": "fedbuff", "buffer": 2, "concurrency": 3, "speeds": {"times": {1: 2, 2: 3}}}
    method = {"name": "fedavg", "server": {"name": "sgd", "lr": 0.5}}
    samples = [1, 1, 3]
    played = play(method, LOCAL, h=[1, 1, 1], a=[8, 16, -8], samples=samples, rounds=2, clock=clock)
    assert played.models == near([3, 3 + (5 / 2 - 12 * 2**-0.5) / 8])


def test_scaffold_with_a_late_client_by_hand():
    """What is uploaded beside the model is not scaled: a = (8, 16), client 1 half as fast, option II, s = 1.

    One step of η = ½: cᵢ⁺ = cᵢ − c + (x − y) / η, with x the model that was sent.
    Time 1: client 0, sent x = 0, c = 0: y = 4, c₀ = −8; x ← 4, c ← 0 + ½ · (−8) = −4.
    Time 2: client 1, sent x = 0, c = 0: y = 8, c₁ = −16; x ← 4 + 8 = 12, c ← −4 + ½ · (−16) = −12.
    Time 2: client 0, sent x = 4, c = −4: it steps along (4 − 8) + 8 − 4 = 0 and stays;
    c₀⁺ = −8 + 4 + 0 = −4: x ← 12 + 0, c ← −12 + ½ · (−4 + 8) = −10, which is (c₀ + c₁) / 2.
    """
    clock = {"name": "asynchronous", "staleness": "constant", "speeds": {"times": {1: 2}}}
    played = play({"name": "scaffold"}, LOCAL, h=[1, 1], a=[8, 16], rounds=3, clock=clock)
    assert played.models == near([4, 12, 12])
    assert played.at_server("scaffold.c") == near([-4, -12, -10])
    assert played.at_client(0, "scaffold.c") == near([-8, -8, -4])
    assert played.at_client(1, "scaffold.c") == near([0, -16, -16])


@pytest.mark.parametrize("clock", ["fedasync", "fedbuff"])
def test_a_client_alone_is_never_late(clock):
    """One client, a = 8: with fedbuff x ← (x + 8) / 2; with fedasync x ← 0.4 x + 0.6 (x + 8) / 2."""
    options = {"name": clock, "buffer": 1}
    played = play({"name": "fedavg"}, LOCAL, h=[1], a=[8], rounds=2, clock=options)
    assert played.models == near([4, 6] if clock == "fedbuff" else [2.4, 4.08])
