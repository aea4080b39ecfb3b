"""Clipping, noise and adaptive bounds against numbers worked out by hand, and noise against its law."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemos.common import rng
from mnemos.errors import ConfigError
from mnemos.methods.exchange import Server, TrainReply, Weight
from mnemos.privacy.gaussian import SECRET, AdaptiveClipping, Gaussian, Mechanism, clipped
from mnemos.privacy.privacy import NoPrivacy, privacies
from mnemos.vector import Kind, Layout, Slot, square_sum

COUNT = 20_000
ONE = Weight.of(1.0)


def layout(size):
    return Layout((Slot("w", (size,), 0, Kind.OTHER),), ())


def update(delta, client=0, change=None):
    return TrainReply(client, 1, 5, 1, 0.0, delta, torch.zeros(0), change or {}, {})


def server(size, mechanism):
    return Server(torch.zeros(size), torch.zeros(0), {}, privacy=mechanism.state())


def normal_by_its_squares(values, scale):
    """Σ v² / σ² of n normal numbers is χ² with n degrees of freedom: n ± 5 √(2 n), and the sum 0 ± 5 √n σ."""
    count = len(values)
    assert abs(square_sum(values) / scale**2 - count) < 5 * math.sqrt(2 * count)
    assert abs(float(values.double().sum())) < 5 * math.sqrt(count) * scale


# --- clipping -----------------------------------------------------------------------------------------


def test_clipping_by_hand():
    """‖(3, 4)‖ = 5: with C = 1 a fifth is left, less a millionth; with C = 5 all of it."""
    delta = torch.tensor([3.0, 4.0])
    kept, inside = clipped(delta, 1.0)
    assert kept.tolist() == pytest.approx([0.6, 0.8], rel=2e-6)
    assert not inside
    assert clipped(delta, 5.0) == (delta, True)
    assert clipped(torch.zeros(2), 1e-9)[1]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 300), st.integers(-30, 30), st.floats(1e-3, 1e3))
def test_what_was_clipped_is_within_the_bound_and_stays_as_it_is(seed, size, power, bound):
    delta = torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 10.0**power
    kept, _ = clipped(delta, bound)
    assert math.sqrt(square_sum(kept)) <= bound
    again, inside = clipped(kept, bound)
    assert inside
    assert torch.equal(again, kept)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nothing_is_left_of_what_is_not_finite(bad):
    kept, inside = clipped(torch.tensor([1.0, bad]), 1.0)
    assert kept.tolist() == [0.0, 0.0]
    assert not inside


# --- noise --------------------------------------------------------------------------------------------


def test_the_server_s_noise_has_its_scale_whoever_comes():
    """m Δ̄ − Σ Δₖ is N(0, (z C)²), z C = 1.5 · 2, of nobody's updates and of three."""
    mechanism = Mechanism(Gaussian(clip=2.0, noise=1.5), 1.5, 4, seed=0)
    for clients in (0, 3):
        fold = mechanism.fold(layout(COUNT), server(COUNT, mechanism), 1 + clients, invited=clients)
        delta = torch.full((COUNT,), 1e-3)
        for client in range(clients):
            fold.add(update(delta, client), ONE)
        aggregate = fold.result()
        normal_by_its_squares(4 * aggregate.delta - clients * delta, 3.0)
        assert aggregate.clients == 4


@pytest.mark.parametrize("heard", [0, 1, 3, 4])
def test_clients_shares_and_the_server_s_for_those_who_are_missing_make_the_same_noise(heard):
    """Each of M = 4 adds N(0, (z C)² / M), and the server (M − heard) / M of it: (z C)² in all, z C = 3."""
    options = Gaussian(clip=2.0, noise=1.5, at="clients")
    mechanism = Mechanism(options, 1.5, 5, seed=0)
    before = server(COUNT, mechanism)
    asked = mechanism.asks(before.privacy, 4)
    fold = mechanism.fold(layout(COUNT), before, 1, invited=4)
    for client in range(heard):
        sent, said = options.protect(torch.zeros(COUNT), asked, 0, 1, client)
        normal_by_its_squares(sent, 1.5)
        assert said == {}
        fold.add(update(sent, client), ONE)
    normal_by_its_squares(5 * fold.result().delta, 3.0)


def test_noise_is_drawn_anew_for_each_client_and_round_and_seed():
    """The correlation of n independent pairs is 0 ± 5 / √n."""
    keys = [(0, 1, 0), (0, 1, 1), (0, 2, 0), (1, 1, 0), (0, 1)]
    drawn = torch.stack([rng.normal(COUNT, seed, "privacy", *rest) for seed, *rest in keys])
    together = torch.corrcoef(drawn) - torch.eye(len(keys))
    assert float(together.abs().max()) < 5 / math.sqrt(COUNT)
    assert torch.equal(rng.normal(COUNT, 0, "privacy", 1, 0), drawn[0])


def test_noise_goes_by_more_of_a_seed_than_torch_s_generators_do():
    """A torch generator takes 32 bits of its seed."""
    one, other = 5, 5 + 2**32
    generators = [torch.Generator().manual_seed(seed) for seed in (one, other)]
    assert torch.equal(*(torch.randn(4, generator=generator) for generator in generators))
    assert not torch.equal(rng.normal(4, one, "privacy", 1), rng.normal(4, other, "privacy", 1))


def test_the_mean_is_over_those_who_were_expected():
    """Two updates of length 1 along the first axis, C = 1, m = 8: a quarter, but for the noise."""
    mechanism = Mechanism(Gaussian(noise=1e-6), 1e-6, 8, seed=0)
    fold = mechanism.fold(layout(2), server(2, mechanism), 1, invited=8)
    for client in range(2):
        fold.add(update(torch.tensor([1.0, 0.0]), client), ONE)
    torch.testing.assert_close(fold.result().delta, torch.tensor([0.25, 0.0]), atol=1e-5, rtol=0)


def test_the_server_clips_what_a_client_hasn_t():
    mechanism = Mechanism(Gaussian(noise=1e-6, adaptive=AdaptiveClipping(noise=1e-3)), 1e-6, 1, seed=0)
    fold = mechanism.fold(layout(2), server(2, mechanism), 1, invited=1)
    fold.add(update(torch.tensor([3e6, 4e6]), change={"privacy.inside": torch.tensor(1e6)}), ONE)
    torch.testing.assert_close(fold.result().delta, torch.tensor([0.6, 0.8]), atol=1e-4, rtol=0)
    # A bit that says more than a bit can is one: b̄ = 1.
    assert float(fold.state()["privacy.clip"]) == pytest.approx(math.exp(-0.2 * 0.5), rel=1e-3)


def test_what_can_not_be_noise_is_cut_off_where_clients_add_it():
    """C = 1, z = 2, m = 4, P = 9: a client adds noise of scale s = z_Δ C / √m to 9 numbers, whose length is
    below (√9 + 8) s; C comes on top. Its bit has noise of scale σ_b / √m = 1.5: it is below ½ + 8 · 1.5."""
    options = Gaussian(noise=2.0, adaptive=AdaptiveClipping(noise=3.0), at="clients")
    mechanism = Mechanism(options, 2.0, 4, seed=0)
    scale = mechanism.update_noise / 2
    fold = mechanism.fold(layout(9), server(9, mechanism), 1, invited=4)
    liar = torch.zeros(9)
    liar[0] = 1e30
    fold.add(update(liar, 0, {"privacy.inside": torch.tensor(-1e30)}), ONE)
    honest = torch.full((9,), 3.0)  # of length 9
    for client in range(1, 4):
        fold.add(update(honest, client, {"privacy.inside": torch.tensor(0.5)}), ONE)
    total = 4 * fold.result().delta
    torch.testing.assert_close(total[1:], torch.full((8,), 9.0))
    assert float(total[0]) - 9 == pytest.approx(1 + 11 * scale, rel=1e-5)
    share = (-12.5 + 1.5) / 4 + 0.5
    assert float(fold.state()["privacy.clip"]) == pytest.approx(math.exp(-0.2 * (share - 0.5)))


# --- adaptive bounds ----------------------------------------------------------------------------------


def test_noise_on_updates_makes_up_for_noise_on_bits():
    """z = 1 and σ_b = 1: z_Δ = (1 − ¼)^−½ = 1.1547, and (z_Δ⁻² + (2 σ_b)⁻²)^−½ is 1 again."""
    mechanism = Mechanism(Gaussian(adaptive=AdaptiveClipping(noise=1.0)), 1.0, 10, seed=0)
    assert mechanism.update_noise == pytest.approx(2 / math.sqrt(3))
    assert (mechanism.update_noise**-2 + 2.0**-2) ** -0.5 == pytest.approx(1.0)
    assert Mechanism(Gaussian(), 1.0, 10, seed=0).update_noise == 1.0


@pytest.mark.parametrize(("expected", "noise", "bits"), [(100, 1.0, 5.0), (10, 1.0, 1.0), (100, 8.0, 8.0)])
def test_noise_on_bits_is_a_twentieth_of_the_clients_or_z(expected, noise, bits):
    assert Mechanism(Gaussian(adaptive=AdaptiveClipping()), noise, expected, seed=0).bit_noise == bits


def test_bits_without_noise_enough_are_refused():
    options = Gaussian(adaptive=AdaptiveClipping(noise=0.5))
    with pytest.raises(ConfigError, match=r"privacy.adaptive.noise: found 0.5; .* half of z = 1"):
        Mechanism(options, 1.0, 10, seed=0)


@pytest.mark.parametrize(
    ("lengths", "share"), [([0.5, 1, 1.5, 3], 0.75), ([3, 3, 3, 3], 0.0), ([1, 1], 0.75), ([], 0.5)]
)
@pytest.mark.parametrize("at", ["server", "clients"])
def test_the_bound_follows_the_share_of_updates_within(lengths, share, at):
    """C = 2, m = 4, η = 0.2, γ = 0.5: C ← 2 exp(−0.2 (b̄ − 0.5)), b̄ = Σ (b − ½) / 4 + ½; who is missing is
    neither within nor outside."""
    options = Gaussian(clip=2.0, noise=1e-6, adaptive=AdaptiveClipping(noise=1e-3), at=at)
    mechanism = Mechanism(options, 1e-6, 4, seed=0)
    before = server(1, mechanism)
    asked = mechanism.asks(before.privacy, len(lengths))
    fold = mechanism.fold(layout(1), before, 1, invited=len(lengths))
    for client, length in enumerate(lengths):
        delta, said = options.protect(torch.tensor([float(length)]), asked, 0, 1, client)
        assert said.keys() == options.sends.keys()
        fold.add(update(delta, client, said), ONE)
    fold.result()
    found = float(fold.state()["privacy.clip"])
    assert found == pytest.approx(2 * math.exp(-0.2 * (share - 0.5)), rel=1e-3)


@pytest.mark.parametrize("at", ["server", "clients"])
def test_noise_on_bits_has_its_scale(at):
    """With η = 1 and γ = ½, −m ln (C' / C) is Σ (b − ½) + N(0, σ_b²): here 0 + N(0, 2²), of 400 rounds."""
    options = Gaussian(noise=1.0, adaptive=AdaptiveClipping(noise=2.0, rate=1.0), at=at)
    mechanism = Mechanism(options, 1.0, 2, seed=0)
    before = server(1, mechanism)
    found = []
    for number in range(400):
        fold = mechanism.fold(layout(1), before, number, invited=2)
        for client, length in enumerate((0.5, 5.0)):  # one within, one not
            sent = options.protect(
                torch.tensor([length]), mechanism.asks(before.privacy, 2), 0, number, client
            )
            fold.add(update(sent[0], client, sent[1]), ONE)
        fold.result()
        found.append(-2 * math.log(float(fold.state()["privacy.clip"])))
    normal_by_its_squares(torch.tensor(found), 2.0)


# --- options ------------------------------------------------------------------------------------------


def test_names_and_defaults():
    assert privacies.names() == ["gaussian", "none"]
    assert privacies.parse("none") == NoPrivacy()
    delta = torch.ones(2)
    assert NoPrivacy().protect(delta, {}, 0, 1, 2) == (delta, {})
    assert not Gaussian().paced
    assert Gaussian(noise=None, budget=1.0).paced


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"noise": None}, "noise: null takes what the budget asks for, and there is no budget"),
        ({"noise": 0}, "noise: found 0; allowed: ≥ 1e-09 and ≤ 1e+06"),
        ({"noise": 1e-160}, "noise: found 1e-160; allowed: ≥ 1e-09 and ≤ 1e+06"),
        ({"noise": 1e9}, "noise: found 1000000000.0; allowed: ≥ 1e-09 and ≤ 1e+06"),
        ({"clip": 0}, "clip: found 0; allowed: > 0"),
        ({"delta": 1}, "delta: found 1; allowed: > 0 and < 1"),
        ({"at": "home"}, "at: found 'home'; allowed: 'server' or 'clients'"),
        ({"adaptive": {"quantile": 1}}, "adaptive.quantile: found 1; allowed: > 0 and < 1"),
    ],
)
def test_wrong_options_are_answered_in_one_sentence(options, sentence):
    with pytest.raises(ConfigError) as error:
        privacies.parse({"name": "gaussian", **options})
    assert str(error.value) == sentence


def test_a_secret_is_what_noise_is_drawn_with(monkeypatch):
    options = Gaussian(secret=True)
    for wrong, problem in (("", "isn't set"), ("short", "has 5 characters")):
        monkeypatch.setenv(SECRET, wrong)
        with pytest.raises(ConfigError, match=f"privacy.secret: .* MNEMOS_SECRET {problem}; .* at least 32"):
            options.key(0)
    monkeypatch.setenv(SECRET, "a" * 32)
    assert options.key(0) == options.key(1) == "a" * 32
    assert Gaussian().key(7) == 7


def test_with_a_secret_nothing_else_ever_gets_the_same_noise(monkeypatch):
    """Two sums with the same noise would give away their difference."""
    monkeypatch.setenv(SECRET, "a" * 32)
    one, other = torch.zeros(4), torch.tensor([0.0, 0.0, 0.0, 1e-6])
    known, secret = Gaussian(), Gaussian(secret=True)
    assert torch.equal(known.draw(one, 0.5, 0, 1)[0], known.draw(other, -0.5, 0, 1)[0])
    first = secret.draw(one, 0.5, 0, 1)[0]
    assert torch.equal(first, secret.draw(one.clone(), 0.5, 0, 1)[0])
    drawn = [secret.draw(other, 0.5, 0, 1), secret.draw(one, -0.5, 0, 1), secret.draw(one, 0.5, 0, 2)]
    assert not any(torch.equal(first, noise) for noise, _ in drawn)
