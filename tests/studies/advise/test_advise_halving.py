"""Who goes on to the next rung, and what a pilot is judged by."""

import optuna
import pytest

from mnemos.studies.advise.halving import Halving
from mnemos.studies.advise.pilots import judged

VALUES = (0.1, 0.9, 0.3, 0.9, 0.2, 0.3, 0.0, 0.4, -1.0)


def going_on(fewest, values=VALUES):
    """The numbers of the trials that go on; all report their values before any is judged."""
    study = optuna.create_study(direction="maximize", pruner=Halving(fewest))
    trials = [study.ask() for _ in values]
    for trial, value in zip(trials, values, strict=True):
        trial.report(value, 6)
    return [trial.number for trial in trials if not trial.should_prune()]


def test_a_quarter_goes_on_by_hand():
    """9 / 4 = 2.25, so three of nine: both of 0.9, and 0.4."""
    assert going_on(1) == [1, 3, 7]
    assert going_on(1, VALUES[:8]) == [1, 3], "8 / 4 = 2"


def test_at_least_so_many_go_on_and_of_equal_ones_the_earlier():
    """The fourth is one of two with 0.3: trial 2, not trial 5."""
    assert going_on(4) == [1, 2, 3, 7]
    assert going_on(20) == list(range(9))


def test_it_makes_no_difference_who_is_asked_first():
    study = optuna.create_study(direction="maximize", pruner=Halving(1))
    trials = [study.ask() for _ in VALUES]
    for trial, value in zip(trials, VALUES, strict=True):
        trial.report(value, 6)
    kept = []
    for trial in reversed(trials):  # the worst ones first; the trials ruled out are told so in between
        if trial.should_prune():
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            kept.append(trial.number)
    assert kept == [7, 3, 1]


def test_rungs_are_judged_apart():
    """A value of a later rung is compared with those of that rung alone."""
    study = optuna.create_study(direction="maximize", pruner=Halving(1))
    best, other = study.ask(), study.ask()
    best.report(0.9, 6)
    other.report(0.5, 6)
    best.report(0.4, 18)
    assert not best.should_prune()
    assert other.should_prune()


def test_the_last_sixth_of_the_rounds_by_hand():
    """18 / 6 = 3: rounds 16, 17 and 18. 6 / 6 = 1: round 6. 9 / 6 = 1.5: rounds 8 and 9."""
    values = {round: float(round) for round in range(1, 31)}
    assert judged(values, 18) == 17
    assert judged(values, 6) == 6
    assert judged(values, 9) == 8.5
    assert judged(values, 30) == pytest.approx((26 + 27 + 28 + 29 + 30) / 5)
    assert judged({5: 0.5, 10: 0.7}, 10) == 0.7, "evaluated every fifth round"
    assert judged({5: 0.5}, 10) is None
    assert judged({}, 3) is None
