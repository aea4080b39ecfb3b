"""Intervals, verdicts and ranges of rates, by hand."""

from __future__ import annotations

import math

import pytest

from effects import Estimate, Verdict, decades, estimate, together, verdict


def test_the_t_interval_of_three_seeds_by_hand() -> None:
    """Mean 2, deviation 1; t with two degrees of freedom is 4.3027."""
    found = estimate([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.half == pytest.approx(4.30265 / math.sqrt(3), abs=1e-5)
    assert (found.low, found.high) == pytest.approx((2 - 2.48414, 2 + 2.48414), abs=1e-5)


def test_the_t_interval_of_five_seeds_by_hand() -> None:
    """Values 0, 1, 2, 3, 4: deviation √2.5; t with four degrees of freedom is 2.7764."""
    assert estimate([0.0, 1.0, 2.0, 3.0, 4.0]).half == pytest.approx(2.77645 * math.sqrt(2.5 / 5), abs=1e-5)


def test_one_seed_has_no_interval() -> None:
    with pytest.raises(ValueError, match="found 1 value"):
        estimate([1.0])


def test_seeds_that_agree_leave_an_interval_of_no_length() -> None:
    assert estimate([0.0, 0.0]) == Estimate(0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("low", "high", "above", "within", "at_least"),
    [
        (0.001, 0.004, Verdict.HOLDS, Verdict.HOLDS, Verdict.HOLDS),  # small, but there
        (0.006, 0.090, Verdict.HOLDS, Verdict.FAILS, Verdict.HOLDS),
        (0.001, 0.090, Verdict.HOLDS, Verdict.OPEN, Verdict.HOLDS),
        (-0.001, 0.090, Verdict.OPEN, Verdict.OPEN, Verdict.HOLDS),
        (-0.001, 0.004, Verdict.FAILS, Verdict.HOLDS, Verdict.HOLDS),  # nothing worth having is left
        (0.000, 0.000, Verdict.FAILS, Verdict.HOLDS, Verdict.HOLDS),
        (-0.090, 0.090, Verdict.OPEN, Verdict.OPEN, Verdict.OPEN),
        (-0.090, -0.006, Verdict.FAILS, Verdict.FAILS, Verdict.FAILS),
        (-0.090, -0.001, Verdict.FAILS, Verdict.OPEN, Verdict.OPEN),
    ],
)
def test_verdicts_with_a_margin_of_half_a_point(
    low: float, high: float, above: Verdict, within: Verdict, at_least: Verdict
) -> None:
    found = Estimate((low + high) / 2, low, high)
    assert verdict(found, "above", 0.005) == above
    assert verdict(found, "within", 0.005) == within
    assert verdict(found, "at least", 0.005) == at_least


def test_a_claim_holds_if_all_its_parts_do() -> None:
    assert together([Verdict.HOLDS, Verdict.HOLDS]) == Verdict.HOLDS
    assert together([Verdict.HOLDS, Verdict.OPEN]) == Verdict.OPEN
    assert together([Verdict.OPEN, Verdict.RUNNING]) == Verdict.RUNNING
    assert together([Verdict.RUNNING, Verdict.FAILS, Verdict.OPEN]) == Verdict.FAILS


def test_the_range_of_good_rates_by_hand() -> None:
    """The bar is 0.9: a fifth of the way from 1 to 0.5, half of the way from 1 to 0.8."""
    assert decades({0.001: 0.5, 0.01: 1.0, 0.1: 0.8}) == pytest.approx(0.2 + 0.5)


def test_the_range_ends_where_the_grid_does() -> None:
    assert decades({0.01: 0.95, 0.1: 1.0, 1.0: 0.99}) == pytest.approx(2.0)
    assert decades({0.01: 1.0, 0.1: 0.0}) == pytest.approx(0.1)


def test_a_second_peak_does_not_count() -> None:
    """Beyond the dip at 0.1 the rate 1 is good again, but not in one range with the best."""
    assert decades({0.01: 1.0, 0.1: 0.5, 1.0: 0.95}) == pytest.approx(0.2)
