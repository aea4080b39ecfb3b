"""Who takes part in a round."""

from __future__ import annotations

import itertools
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemos.common.rng import numpy_generator
from mnemos.data.partition import Partition
from mnemos.experiment.experiment import load_experiment
from mnemos.federation.federation import Federation
from mnemos.selection import Available, Poisson, UniformSelection, selections
from support.play import play

CHI2_19 = 43.8
"""The 99.9 % quantile of the χ² distribution with 19 degrees of freedom."""


class Gaps(Partition):
    """Every other client holds nothing."""

    def assign(self, labels, owners, rng):
        held = np.arange(self.clients) % 2 * (len(labels) // self.clients)
        return np.arange(held.sum()), np.concatenate([[0], np.cumsum(held)])


def draw(eligible, count, seed=0):
    return UniformSelection().select(eligible, count, numpy_generator(seed, "selection", 1))


@settings(max_examples=100, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**63 - 1))
def test_as_many_as_asked_for_without_repeats_in_order_of_the_eligible(data, seed):
    eligible = np.array(data.draw(st.lists(st.integers(0, 10**6), min_size=1, max_size=40, unique=True)))
    eligible.sort()
    count = data.draw(st.integers(0, len(eligible)))
    found = draw(eligible, count, seed)
    assert len(found) == count
    assert (np.diff(found) > 0).all()
    assert set(found.tolist()) <= set(eligible.tolist())
    by_number = draw(len(eligible), count, seed)
    assert np.array_equal(eligible[by_number], found)
    assert found.dtype == by_number.dtype == np.int64


def test_everyone_and_nobody():
    assert draw(7, 7).tolist() == list(range(7))
    assert draw(np.array([2, 5, 9]), 3).tolist() == [2, 5, 9]
    assert draw(7, 0).tolist() == []


def test_more_than_there_are_is_refused():
    with pytest.raises(ValueError, match="larger sample than population"):
        draw(7, 8)


def test_the_eligible_stay_as_they_are():
    eligible = np.array([2, 5, 9, 11])
    found = draw(eligible, 2)
    found[:] = -1
    assert eligible.tolist() == [2, 5, 9, 11]


def test_every_cohort_is_equally_likely():
    """All ⁶C₃ = 20 cohorts of three of six over 4,000 seeds: Σ (O − E)² / E with E = 200 is χ² with 19
    degrees of freedom."""
    found = Counter(tuple(draw(6, 3, seed).tolist()) for seed in range(4000))
    assert set(found) == set(itertools.combinations(range(6), 3))
    assert sum((seen - 200) ** 2 / 200 for seen in found.values()) < CHI2_19


@pytest.mark.parametrize("population", [20, np.arange(20)], ids=["number", "array"])
def test_every_client_is_equally_likely(population):
    """k = 5 of K = 20 clients over n = 1,000 seeds: each client is expected np = 250 times, p = k/K.

    The counts have covariance np(1−p) (K/(K−1)) (I − 11ᵀ/K), so Σ (O − np)² / (np) is (1−p) K/(K−1) times
    a χ² variable with K − 1 degrees of freedom.
    """
    counts = np.zeros(20)
    for seed in range(1000):
        counts[draw(population, 5, seed)] += 1
    assert ((counts - 250) ** 2 / 250).sum() < CHI2_19 * (1 - 5 / 20) * 20 / 19


def test_of_a_million_clients_every_tenth_of_them_has_its_share():
    """A cohort of 20,000: a tenth of the population has 2,000 of them, with a variance of less than 1,800."""
    found = draw(1_000_000, 20_000)
    shares = np.bincount(found // 100_000, minlength=10)
    assert shares.sum() == 20_000
    assert np.abs(shares - 2000).max() < 5 * 1800**0.5


def test_of_a_million_clients_the_result_depends_on_the_generator_only():
    first = draw(1_000_000, 100)
    np.random.seed(1)  # noqa: NPY002
    np.random.random(10)  # noqa: NPY002
    assert np.array_equal(draw(1_000_000, 100), first)
    assert np.array_equal(draw(np.arange(1_000_000), 100), first)
    assert len(np.unique(first)) == 100
    assert not np.array_equal(draw(1_000_000, 100, seed=1), first)


def test_memory_depends_on_the_cohort_only():
    draw(10, 5)
    tracemalloc.start()
    found = draw(1_000_000_000, 100)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == 100
    assert peak < 100_000


def test_each_client_by_a_draw_of_its_own():
    """p = 5/20 over n = 2,000 seeds. A client's count is binomial: np ± 5 √(np(1−p)). So is the size of a
    cohort, with mean 5 and variance 20 p (1−p) = 3.75, where a fixed number has none; and clients don't
    depend on each other: two are in the same cohort n p² = 125 ± 5 √(125 (1 − p²)) times."""
    cohorts = [Poisson().select(20, 5, numpy_generator(seed, "selection", 1)) for seed in range(2000)]
    member = np.zeros((2000, 20))
    for row, cohort in zip(member, cohorts, strict=True):
        row[cohort] = 1
    assert np.abs(member.sum(0) - 500).max() < 5 * (500 * 0.75) ** 0.5
    sizes = member.sum(1)
    assert abs(sizes.mean() - 5) < 5 * (3.75 / 2000) ** 0.5
    assert abs(sizes.var() - 3.75) < 5 * 3.75 * (2 / 2000) ** 0.5
    pairs = (member.T @ member)[np.triu_indices(20, 1)]
    assert np.abs(pairs - 125).max() < 5 * (125 * (1 - 0.25**2)) ** 0.5
    assert all((np.diff(cohort) > 0).all() for cohort in cohorts)


def test_everyone_and_nobody_by_draws_of_their_own():
    generator = numpy_generator(0, "selection", 1)
    assert Poisson().select(7, 7, generator).tolist() == list(range(7))
    assert Poisson().select(np.array([2, 5, 9]), 3, generator).tolist() == [2, 5, 9]
    assert Poisson().select(7, 0, generator).tolist() == []


def test_names():
    assert selections.names() == ["available", "poisson", "uniform"]
    assert selections.parse("uniform") == UniformSelection()


# --- in a federation ----------------------------------------------------------------------------------


def federation(tiny, **changes):
    built = Federation(load_experiment({}, {**tiny, **changes}))
    built.close()
    return built


def test_clients_without_training_samples_never_take_part(tiny):
    found = federation(tiny, partition={"name": "test_selection:Gaps", "clients": 12}, participation=0.25)
    cohorts = [found.cohort(number) for number in range(1, 31)]
    assert all(len(cohort) == 3 for cohort in cohorts)
    assert set(np.concatenate(cohorts).tolist()) == {1, 3, 5, 7, 9, 11}
    all_of_them = federation(
        tiny, partition={"name": "test_selection:Gaps", "clients": 12}, participation=1.0
    )
    assert all_of_them.cohort(1).tolist() == [1, 3, 5, 7, 9, 11]


@pytest.mark.parametrize(("share", "count"), [(0.29, 29), (0.1, 10), (0.019, 1), (1, 100), (0.999, 99)])
def test_a_cohort_s_size_is_the_share_rounded_down(share, count, tiny):
    """0.29 × 100 is 28.999… in floating point, and 29 is meant."""
    found = federation(tiny, partition={"name": "iid", "clients": 100}, participation=share)
    assert len(found.cohort(1)) == count


def test_cohorts_differ_between_rounds_and_seeds_and_nothing_else(tiny):
    one = federation(tiny)
    same = federation(tiny, rounds=9, local={"lr": 0.5}, model={"name": "logistic"})
    other = federation(tiny, seed=1)
    rounds = range(1, 21)
    assert all(np.array_equal(one.cohort(number), same.cohort(number)) for number in rounds)
    assert len({tuple(one.cohort(number).tolist()) for number in rounds}) > 10
    assert any(not np.array_equal(one.cohort(number), other.cohort(number)) for number in rounds)


@pytest.mark.parametrize("engine", ["serial", "vmap", "auto"])
def test_rounds_in_which_nobody_was_drawn_change_nothing(engine, tiny):
    """One of twelve on average: a cohort is empty with probability (11/12)¹² = 0.35."""
    changes = {"selection": "poisson", "participation": 1 / 12, "rounds": 8, "engine": engine}
    playing = Federation(load_experiment({}, {**tiny, **changes, "evaluate": {"forgetting": 1}}))
    with playing.open() as runner:
        for number in range(1, 9):
            before = playing.server.model
            playing.advance(runner)
            assert bool((playing.server.model == before).all()) == (not len(playing.cohort(number)))
    playing.close()
    sizes = [len(playing.cohort(number)) for number in range(1, 9)]
    assert 0 in sizes
    assert max(sizes) > 1


# --- availability ---------------------------------------------------------------------------------------


def test_a_day_by_hand():
    """All mornings at once, two rounds of a day of four: rounds 1 and 2, 5 and 6, …"""
    day = Available(day=4, share=0.5, spread=0.0)
    there = [len(np.arange(3)[day.reachable(3, number, 0)]) for number in range(1, 9)]
    assert there == [3, 3, 0, 0, 3, 3, 0, 0]


def test_everyone_is_there_for_its_share_of_the_day_at_a_time_of_its_own():
    """1,000 clients over a day of 10 rounds: each for 3 of them in a row, and in each round about 300."""
    day = Available(day=10, share=0.3)
    rounds = [day.reachable(1000, number, 0) for number in range(1, 11)]
    table = np.array([np.isin(np.arange(1000), there) for there in rounds])
    assert (table.sum(axis=0) == 3).all()
    assert np.abs(table.sum(axis=1) - 300).max() < 5 * (1000 * 0.3 * 0.7) ** 0.5
    begins = (table & ~np.roll(table, 1, axis=0)).sum(axis=0)
    assert (begins == 1).all()
    assert np.array_equal(day.reachable(1000, 3, 0), day.reachable(1000, 13, 0))


def test_a_client_s_day_does_not_depend_on_who_else_is_eligible():
    day = Available()
    everyone, some = day.reachable(50, 7, 0), day.reachable(np.array([3, 20, 49]), 7, 0)
    assert some.tolist() == [client for client in (3, 20, 49) if client in everyone]
    assert len(day.reachable(np.zeros(0, np.int64), 1, 0)) == 0


def test_a_federation_by_day_and_night(tiny):
    """Half of the rounds with a cohort of those who are there; in the others nobody trains."""
    night = {"name": "available", "day": 4, "share": 0.5, "spread": 0.0}
    found, outcomes = play(load_experiment({}, {**tiny, "selection": night}), 4)
    trained = [sum(record.name == "train_loss" for record in outcome.records) for outcome in outcomes]
    assert trained == [5, 5, 0, 0]  # four clients, and their mean
    assert found.round == 4


@pytest.mark.parametrize("stream", [{"name": "static"}, {"name": "tasks", "tasks": 2}])
def test_cohorts_are_of_those_who_are_there(tiny, stream):
    found = federation(tiny, selection={"name": "available", "day": 6, "share": 0.5}, stream=stream)
    day = found.experiment.selection
    for number in range(1, 5):
        assert np.isin(found.cohort(number), day.reachable(12, number, 0)).all()
