"""The ranking: intervals and tests over seeds by hand, the cheapest, and what can't be told."""

from pathlib import Path

import pytest

from mnemos.experiment.experiment import load_experiment
from mnemos.runs.run import Run
from mnemos.studies.advise.advice import advice_of
from mnemos.studies.advise.description import describe
from mnemos.studies.advise.pilots import Pilot
from mnemos.studies.advise.ranking import cheapest, interval, rank
from mnemos.studies.advise.search import Candidate, Found, SearchGoal
from mnemos.studies.advise.space import Space

BASE = load_experiment({"partition": {"clients": 8}, "rounds": 90})
SPACE = Space({"local.lr": [0.1, 0.2, 0.3, 0.4]})


def pilot(accuracy, forgetting=0.1, size=100.0, seconds=1.0):
    return Pilot(Run(Path("x")), 45, accuracy, forgetting, seconds, size, "" if accuracy else "lost")


def candidate(rate, accuracies, **kind):
    changes = {"local.lr": rate}
    seeds = {seed: pilot(value, **kind) for seed, value in enumerate(accuracies, 1)}
    return Candidate(changes, BASE.override(changes), pilot(0.5), seeds)


def found(*finalists, ruled_out=()):
    goal = SearchGoal(BASE, SPACE, (1, 2, 3))
    return Found(goal, (5, 15, 45), (*finalists, *ruled_out), finalists, 30.0, 60.0, False)


def ranked(*finalists):
    return rank(found(*finalists), {id(one): str(one.changes["local.lr"]) for one in finalists})


def test_interval_by_hand():
    """0.4, 0.5, 0.6: mean 0.5, s = 0.1, t(2) = 4.3027: 0.5 ± 4.3027 · 0.1 / √3 = 0.5 ± 0.2484."""
    assert interval([0.4, 0.5, 0.6]) == pytest.approx((0.2516, 0.7484), abs=1e-4)
    assert interval([0.9, 1.0]) == pytest.approx((0.3147, 1.0), abs=1e-4), "cut off at 1"
    assert interval([0.5]) is None


def test_differences_are_those_of_pairs():
    """The seeds differ by tens of points, the pairs by 2.1, 2.0, 1.9: mean 2, s = 0.1, so it is real.

    The interval is −2 ± 4.3027 · 0.1 / √3 = −2 ± 0.248.
    """
    best, worse = ranked(candidate(0.1, [0.479, 0.68, 0.881]), candidate(0.2, [0.5, 0.7, 0.9]))
    assert (best.name, best.verdict, best.difference) == ("0.2", "best", None)
    assert worse.verdict == "worse"
    assert worse.difference == pytest.approx(-2)
    assert worse.difference_low == pytest.approx(-2.248, abs=1e-3)
    assert worse.difference_high == pytest.approx(-1.752, abs=1e-3)
    assert worse.p < 0.01


def test_two_seeds_are_too_few_to_tell():
    _, other = ranked(candidate(0.1, [0.50, 0.60]), candidate(0.2, [0.6, 0.7000001]))
    assert other.p is not None
    assert other.verdict == "not told apart"


def test_only_seeds_that_all_have_are_compared():
    best, other = ranked(candidate(0.1, [0.5, 0.5, 0.5]), candidate(0.2, [0.4, 0.4]))
    assert best.values.keys() == other.values.keys() == {1, 2}


def test_a_finalist_that_does_not_always_converge_is_last():
    best, other = ranked(candidate(0.1, [0.9, None, 0.9]), candidate(0.2, [0.3, 0.3, 0.3]))
    assert best.name == "0.2"
    assert other.verdict == "did not converge"
    assert other.value is None


def test_the_cheapest_runner_up():
    """Of those that can't be told apart, the one with fewest bytes; if all can, the cheapest of all."""
    finalists = (
        candidate(0.1, [0.8, 0.7, 0.9]),
        candidate(0.2, [0.7, 0.8, 0.7], size=80.0),
        candidate(0.3, [0.6, 0.9, 0.8], size=60.0),
        candidate(0.4, [0.1, 0.0, 0.21], size=10.0),
    )
    rows = ranked(*finalists)
    assert rows[-1].verdict == "worse"
    assert cheapest(rows).name == "0.3"
    assert cheapest([rows[0], rows[-1]]).name == "0.4"
    assert cheapest(rows[:1]) is None


def test_the_front():
    rows = ranked(
        candidate(0.1, [0.8] * 3, forgetting=0.3),
        candidate(0.2, [0.7] * 3, forgetting=0.1),
        candidate(0.3, [0.6] * 3, forgetting=0.2),
    )
    assert [row.front for row in rows] == [True, True, False]


def advice(tmp_path, *finalists, ruled_out=()):
    return advice_of(found(*finalists, ruled_out=ruled_out), describe(BASE), tmp_path)


def test_advice_names_what_is_worse_and_what_cannot_be_told(tmp_path):
    out = Candidate({"local.lr": 0.3}, BASE, pilot(0.2), reason="20.0 % after 5 rounds")
    given = advice(
        tmp_path,
        candidate(0.2, [0.5, 0.7, 0.9], seconds=9.0),
        candidate(0.1, [0.479, 0.68, 0.881]),
        candidate(0.4, [0.6, 0.6, 0.6], size=50.0),
        ruled_out=(out,),
    )
    text = str(given)
    assert "Take lr=0.2: 70.0 % of the validation data after 45 rounds (95 %: 20.3 to 100.0)" in text
    assert "lr=0.1 is worse by 2.0 points (95 %: 1.8 to 2.2" in text
    assert "It can't be told apart, over 3 seeds, from lr=0.4." in text
    assert "cheapest runner-up is lr=0.4: 50 % fewer bytes per round, 1 s a pilot instead of 9 s" in text
    assert "pilots had 45 of the experiment's 90 rounds" in text
    assert given.ruled_out == (("lr=0.3", "20.0 % after 5 rounds"),)
    assert list(given.table()["verdict"]) == ["best", "not told apart", "worse"] or len(given.table()) == 3


def test_a_rate_at_the_edge_is_warned_of(tmp_path):
    given = advice(tmp_path, candidate(0.4, [0.5] * 3), candidate(0.2, [0.4] * 3))
    assert any("local.lr = 0.4 is at the edge" in sentence for sentence in given.warnings)


def test_without_finalists_it_cannot_tell(tmp_path):
    given = advice(tmp_path)
    assert given.winner is None
    assert "It can't be told what to take" in str(given)


def test_with_one_seed_it_cannot_tell_what_is_real(tmp_path):
    given = advice(tmp_path, candidate(0.2, [0.5]), candidate(0.1, [0.4]))
    assert "there was time for one seed" in str(given)
