"""How long clients take."""

import math

import numpy as np
import pytest

from mnemos.clocks.speeds import Speeds
from mnemos.errors import ConfigError


def times(speeds, population=200, seed=0):
    return np.array([speeds.step(client, population, seed) for client in range(population)])


def test_a_client_takes_its_steps_times_its_time_a_step():
    speeds = Speeds(times={1: 2.5})
    assert speeds.duration(0, 7, 1, 3, 0) == 7.0
    assert speeds.duration(1, 7, 1, 3, 0) == 17.5


def test_drawn_times_are_log_normal_and_a_matter_of_seed_and_client():
    """The logarithms of 2,000 draws with σ = ½: mean 0 ± 0.011, standard deviation 0.5 ± 0.008."""
    speeds = Speeds(spread=0.5)
    logs = np.log(times(speeds, 2000))
    assert abs(logs.mean()) < 0.05
    assert abs(logs.std() - 0.5) < 0.04
    assert np.array_equal(times(speeds), times(speeds))
    assert times(speeds, 20).tolist() == times(speeds, 30)[:20].tolist()  # whoever else there is
    assert not np.array_equal(times(speeds), times(speeds, seed=1))


@pytest.mark.parametrize(("share", "count"), [(0.1, 20), (0.001, 1), (1.0, 200)])
def test_stragglers_are_slower_by_a_factor(share, count):
    plain, slowed = (
        times(Speeds(spread=0.3)),
        times(Speeds(spread=0.3, stragglers={"share": share, "factor": 4})),
    )
    factors = slowed / plain
    assert np.isclose(factors, 4).sum() == count
    assert np.isclose(factors, 1).sum() == 200 - count


def test_named_clients_have_the_time_that_is_given():
    """Also those that would be stragglers."""
    speeds = Speeds(stragglers={"share": 1.0}, times={"3": 0.5})
    assert times(speeds, 5).tolist() == [10.0, 10.0, 10.0, 0.5, 10.0]


def test_jitter_is_drawn_anew_for_each_round_of_a_client():
    speeds = Speeds(jitter=0.2)
    drawn = [speeds.duration(client, 1, number, 5, 0) for client in range(5) for number in range(1, 201)]
    assert len(set(drawn)) == 1000
    assert abs(np.log(drawn).std() - 0.2) < 0.02
    assert speeds.duration(4, 1, 200, 5, 0) == drawn[-1]
    assert speeds.duration(4, 3, 200, 5, 0) == pytest.approx(3 * drawn[-1])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"spread": -1}, "spread: found -1; allowed: ≥ 0"),
        ({"jitter": -0.1}, "jitter: found -0.1; allowed: ≥ 0"),
        ({"stragglers": {"share": 0}}, "stragglers.share: found 0; allowed: > 0"),
        ({"stragglers": {"factor": 0.5}}, "stragglers.factor: found 0.5; allowed: ≥ 1"),
        ({"times": {"one": 1}}, "times.one"),
        ({"times": {"1": 0}}, "times.1: found 0; allowed: > 0"),
        ({"times": {"1": math.inf}}, "times.1: found inf; expected a finite number"),
        ({"times": 3}, "times: found 3; expected a mapping"),
        ({"speed": 3}, "speed: unknown field"),
    ],
)
def test_bad_speeds(options, sentence):
    with pytest.raises(ConfigError) as caught:
        Speeds.parse(options)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)
