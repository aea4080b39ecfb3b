"""ε against published examples and closed forms."""

from __future__ import annotations

import logging
import math
import sys

import dp_accounting
import numpy as np
import pytest
from scipy.stats import norm

from mnemos.errors import ConfigError
from mnemos.privacy.accountant import LEAST, MOST, Accountant, Sampling, calibrated

EVERYONE = Sampling(100, 100, poisson=False)
POISSON = Sampling(100, 10, poisson=True)
FIXED = Sampling(100, 10, poisson=False)


def curve(sampling, noise, rounds):
    """Rényi divergences by order, as the library has them."""
    accountant = sampling.accountant().compose(sampling.bounds[0](noise), rounds)
    return dict(zip(accountant.orders.tolist(), accountant.rdp.tolist(), strict=True))


def test_the_published_example_of_dp_sgd():
    """TensorFlow Privacy, from which dp-accounting comes, gives (2.92, 1e-5) for 60,000 samples, batches of
    256, noise 1.12 and 60 epochs (compute_dp_sgd_privacy.py, by its first rule: ε = ρ + ln(1/δ) / (α − 1)).

    The library's present rule is tighter: 2.52, found with it for this example.
    """
    sampling, rounds = Sampling(60_000, 256, poisson=True), math.ceil(60 * 60_000 / 256)
    first = [rho + math.log(1e5) / (order - 1) for order, rho in curve(sampling, 1.12, rounds).items()]
    assert min(first) == pytest.approx(2.92, abs=0.005)
    assert Accountant(sampling, 1.12, 1e-5).epsilon(rounds) == pytest.approx(2.52, abs=0.005)


def test_the_library_s_own_example_of_sampled_noise():
    """Its test of 50 rounds with probability 0.01 and noise 2.5 has these divergences at orders 5 and 50."""
    found = curve(Sampling(1000, 10, poisson=True), 2.5, 50)
    assert found[5] == pytest.approx(2.18075656e-03, rel=1e-4)
    assert found[50] == pytest.approx(2.38460375e-02, rel=1e-4)


@pytest.mark.parametrize(
    ("population", "cohort", "noise", "rounds", "delta"),
    [
        (100, 10, 1.0, 100, 1e-5),
        (100, 10, 0.5, 100, 1e-5),
        (1000, 10, 0.5, 300, 1e-6),
        (2000, 200, 0.6, 100, 1e-4),
        (50, 25, 2.0, 40, 1e-3),
        (10, 9, 1.0, 100, 1e-5),
    ],
)
def test_epsilon_is_the_library_s_with_its_own_orders(population, cohort, noise, rounds, delta):
    """With all defaults of dp-accounting, fractional orders among them."""
    library = dp_accounting
    event = library.PoissonSampledDpEvent(cohort / population, library.GaussianDpEvent(noise))
    expected = library.rdp.RdpAccountant().compose(event, rounds).get_epsilon(delta)
    found = Accountant(Sampling(population, cohort, poisson=True), noise, delta).epsilon(rounds)
    assert found == pytest.approx(expected, rel=1e-9)


def test_whole_orders_alone_would_cost_more():
    """36.97 with all of the library's orders, of which 1.7 is the best; 53.04 with the whole ones."""
    library = dp_accounting
    event = library.PoissonSampledDpEvent(0.1, library.GaussianDpEvent(0.5))
    whole = library.rdp.RdpAccountant([*range(2, 64), 128, 256, 512, 1024]).compose(event, 100)
    assert whole.get_epsilon(1e-5) == pytest.approx(53.04, abs=0.01)
    assert Accountant(POISSON, 0.5, 1e-5).epsilon(100) == pytest.approx(36.97, abs=0.01)


def test_divergences_that_rounding_makes_negative_are_no_free_rounds():
    """With noise 10⁶ and a probability of 0.001 the library's sums are −10⁻¹⁷ at some orders: ε = 0.

    At order α = 1024 all of 10⁴ rounds come to less than α T / (2 z²) = 5 · 10⁻⁶, what holds without
    sampling, and ε = ln(1 − 1/α) − ln(δ α) / (α − 1) to that: 0.071 for δ = 10⁻³⁵.
    """
    sampling = Sampling(1000, 1, poisson=True)
    library = dp_accounting
    event = library.PoissonSampledDpEvent(0.001, library.GaussianDpEvent(1e6))
    assert library.rdp.RdpAccountant().compose(event, 10_000).get_epsilon(1e-35) == 0
    by_hand = math.log1p(-1 / 1024) - math.log(1024e-35) / 1023
    assert by_hand <= Accountant(sampling, 1e6, 1e-35).epsilon(10_000) <= by_hand + 5.2e-6


def test_rounds_are_counted_without_another_sum(monkeypatch):
    """A series is summed once for each noise; every round after that is a multiple of it."""
    accountant = Accountant(Sampling(777, 7, poisson=True), 1.3, 1e-5)
    first = accountant.epsilon(1)
    monkeypatch.setattr(Sampling, "accountant", None)
    assert first < accountant.epsilon(2) < accountant.epsilon(500)
    assert accountant.rounds(accountant.epsilon(321), 1000) == 321


def test_noise_for_a_budget_is_looked_for_once(monkeypatch):
    sampling = Sampling(888, 80, poisson=True)
    noise = calibrated(sampling, 60, 3.0, 1e-5)
    monkeypatch.setattr(Sampling, "accountant", None)
    assert calibrated(sampling, 60, 3.0, 1e-5) == noise


def test_the_library_s_own_example_by_privacy_loss():
    """Its tests of the other accountant have an exact pair for three rounds with probability 0.2 and noise
    0.5: (1, 0.15594). A bound must not be below."""
    assert Accountant(Sampling(10, 2, poisson=True), 0.5, 0.15594).epsilon(3) >= 1


@pytest.mark.parametrize(("noise", "rounds"), [(1.0, 1), (5.0, 10), (20.0, 100), (4.530877117, 1)])
def test_plain_noise_has_a_closed_form(noise, rounds):
    """T rounds are one with μ = √T / z, and δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) exactly (Balle, Wang,
    2018, arXiv 1805.06530). By Rényi divergence ρ = α T / (2 z²), ε = ρ + ln(1 − 1/α) − ln(δ α) / (α − 1) at
    the best α, which is more, but not by much."""
    mu = math.sqrt(rounds) / noise
    epsilon = Accountant(EVERYONE, noise, 1e-6).epsilon(rounds)
    exact = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert 1e-7 < exact <= 1e-6
    orders = np.arange(1.01, 500, 0.01)
    rho = orders * rounds / (2 * noise**2)
    by_hand = rho + np.log1p(-1 / orders) - np.log(1e-6 * orders) / (orders - 1)
    assert epsilon == pytest.approx(by_hand.min(), rel=5e-3)


def test_noise_that_was_chosen_for_1_and_a_millionth():
    """The library's test has noise 4.530877117 for (1, 1e-6)."""
    assert Accountant(EVERYONE, 4.530877117, 1e-6).epsilon(1) == pytest.approx(1, rel=1e-3)


def test_a_client_that_is_replaced_changes_the_sum_by_twice_the_bound():
    """Without replacement the bound is the library's for half of the noise; it never exceeds what all of the
    clients, each replaced by its opposite, would cost: α T / (2 (z/2)²)."""
    library = dp_accounting
    other = FIXED.accountant().compose(
        library.SampledWithoutReplacementDpEvent(100, 10, library.GaussianDpEvent(2.0)), 50
    )
    assert Accountant(FIXED, 4.0, 1e-5).epsilon(50) == pytest.approx(other.get_epsilon(1e-5))
    most = Sampling(100, 99, poisson=False)
    plain = FIXED.accountant().compose(library.GaussianDpEvent(2.0), 50).get_epsilon(1e-5)
    assert Accountant(most, 4.0, 1e-5).epsilon(50) == pytest.approx(plain)


def test_chance_helps_and_more_rounds_cost_more():
    by_kind = {
        kind: [Accountant(kind, 2.0, 1e-5).epsilon(rounds) for rounds in (1, 10, 100)]
        for kind in (POISSON, FIXED, EVERYONE)
    }
    for found in by_kind.values():
        assert 0 < found[0] < found[1] < found[2] < math.inf
    assert by_kind[POISSON][1] < by_kind[FIXED][1]
    assert by_kind[POISSON][1] < by_kind[EVERYONE][1]


def test_a_round_that_was_done_twice_is_one_with_less_noise():
    """Two sums of the same clients with noise z are one with z / √2: for everyone two rounds, and for a drawn
    cohort more than two, as the library has it."""
    everyone = Accountant(EVERYONE, 2.0, 1e-5)
    assert everyone.epsilon(5, [2, 3]) == pytest.approx(everyone.epsilon(8))
    library = dp_accounting

    def drawn(noise):
        return library.PoissonSampledDpEvent(0.1, library.GaussianDpEvent(noise))

    both = POISSON.accountant().compose(drawn(2.0), 4).compose(drawn(2 / math.sqrt(2)))
    poisson = Accountant(POISSON, 2.0, 1e-5)
    assert poisson.epsilon(5, [2]) == pytest.approx(both.get_epsilon(1e-5))
    assert poisson.epsilon(5, [2]) > poisson.epsilon(6)


def test_the_probability_is_one_of_all():
    """Each of all clients with probability 1 is everyone."""
    certain = Sampling(100, 100, poisson=True)
    assert Accountant(certain, 2.0, 1e-5).epsilon(10) == Accountant(EVERYONE, 2.0, 1e-5).epsilon(10)


def test_rounds_within_a_budget():
    accountant = Accountant(POISSON, 1.5, 1e-5)
    allowed = accountant.rounds(4.0, 10_000)
    assert accountant.epsilon(allowed) <= 4.0 < accountant.epsilon(allowed + 1)
    assert accountant.rounds(4.0, allowed - 1) == allowed - 1
    assert accountant.rounds(accountant.epsilon(1), 10) == 1
    assert accountant.rounds(accountant.epsilon(1) - 1e-9, 10) == 0


@pytest.mark.parametrize("sampling", [POISSON, EVERYONE], ids=["poisson", "everyone"])
def test_noise_for_a_budget(sampling):
    noise = calibrated(sampling, 100, 4.0, 1e-5)
    assert Accountant(sampling, noise, 1e-5).epsilon(100) <= 4.0
    assert Accountant(sampling, 0.995 * noise, 1e-5).epsilon(100) > 4.0


@pytest.mark.parametrize("sampling", [POISSON, EVERYONE], ids=["poisson", "everyone"])
def test_a_budget_that_asks_for_no_noise_is_refused(sampling):
    """From what 0.01 costs on. That is about α T / (2 z²): 0.9 of it takes 0.01 / √0.9."""
    most = Accountant(sampling, 0.01, 1e-5).epsilon(100)
    for budget in (most, 1e12):
        with pytest.raises(ConfigError) as error:
            calibrated(sampling, 100, budget, 1e-5)
        assert str(error.value) == (
            f"privacy.budget: found {budget:g}; allowed with noise: null, which takes 0.01 to 1e+06: from 0 "
            f"to {most:.3g}"
        )
    assert calibrated(sampling, 100, 0.9 * most, 1e-5) == pytest.approx(0.01 / math.sqrt(0.9), abs=2e-3)


@pytest.mark.parametrize("sampling", [POISSON, EVERYONE], ids=["poisson", "everyone"])
def test_a_budget_that_no_noise_keeps_to_is_refused(sampling):
    with pytest.raises(ConfigError, match=r"privacy.budget: found 1e-09; allowed .* from 0?[.0-9e-]+ to "):
        calibrated(sampling, 50, 1e-9, 1e-300)


@pytest.mark.parametrize("sampling", [POISSON, EVERYONE, FIXED], ids=["poisson", "everyone", "fixed"])
def test_the_library_can_count_with_all_the_noise_that_is_allowed(sampling):
    """Almost none costs what α T / (2 z²) is at least, with α = 1; a lot costs nothing at this δ."""
    assert 1 / (2 * LEAST**2) < Accountant(sampling, LEAST, 1e-5).epsilon(1) < math.inf
    assert Accountant(sampling, MOST, 1e-5).epsilon(1) == 0


def test_the_library_s_remarks_stay_off_the_terminal(caplog):
    """About divergences that rounding has made negative; others with the same logger are heard."""
    with caplog.at_level(logging.WARNING):
        assert Accountant(POISSON, 1e8, 1e-5).epsilon(1) == 0
        assert caplog.messages == []
        logging.getLogger("absl").warning("something else")
    assert caplog.messages == ["something else"]


def test_words():
    assert EVERYONE.words == "all 100 clients in every round"
    assert POISSON.words == "each of 100 clients with probability 0.1"
    assert FIXED.words == "10 of 100 clients, without replacement"
    assert EVERYONE.relation == POISSON.relation == "a client takes part or sends nothing"
    assert FIXED.relation == "a client has its own data or any other"


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ConfigError, match=r"privacy: it needs the package dp-accounting .* the extra 'dp'"):
        Accountant(EVERYONE, 1.0, 1e-5).epsilon(1)
