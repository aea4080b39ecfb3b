"""The search: its space, its rungs, successive halving, and going on after a kill."""

import json

import optuna
import pytest
from tiny_federation import BASE

from mnemos.errors import ConfigError, PausedError
from mnemos.experiment.experiment import load_experiment
from mnemos.runs.store import overall_values
from mnemos.studies.advise import search
from mnemos.studies.advise.pilots import Pilots, judged
from mnemos.studies.advise.rungs import rungs_for
from mnemos.studies.advise.search import DATABASE, Search, SearchGoal
from mnemos.studies.advise.space import Space, default_space, space_of
from mnemos.studies.advise.tuning import goal_of
from mnemos.studies.study import Study

STUDY = {
    "base": BASE,
    "list": [
        {"local.lr": 1e-6},
        {"local.lr": 0.5},
        {"local.lr": 1e-5},
        {"local.lr": 1e30},
        {"method": "scaffold", "method.loss": "no-such-loss"},
    ],
    "seeds": [1, 2],
}
GOOD = {**STUDY, "list": STUDY["list"][:4]}


class Killed(BaseException):
    """As if the process were gone."""


def searched(folder, study=GOOD, say=None, budget=600.0):
    return Search(goal_of(Study.read(study)), folder, budget, say).run()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A search that nothing has interrupted, and what it said."""
    said = []
    return searched(tmp_path_factory.mktemp("whole"), say=said.append), said


def test_rungs_by_hand():
    """24 candidates · (1/3 + 1/4 · 2/3) + 4 finalists · 3 seeds = 24 whole pilots of R rounds of 0.1 s.

    In 200 s that gives R ≤ 83.3: 83, and 83 // 3 = 27 for a first pilot.
    """
    assert rungs_for(1000, 0.1, 200, 3) == (27, 83)
    assert rungs_for(50, 0.1, 200, 3) == (16, 50)
    assert rungs_for(50, None, 200, 3) == (16, 50), "an unknown time a round"
    assert rungs_for(8, 0.1, 200, 3) == (2, 8)
    assert rungs_for(2, 0.1, 200, 3) == (2,)
    assert rungs_for(1000, 100, 20, 3) == (1, 3), "far too little time"


def test_the_default_space_has_the_experiments_own_choices_and_tries_them_first():
    base = load_experiment({"method": {"name": "fedprox", "loss": "tce"}, "local": {"lr": 0.02}})
    space = default_space(base)
    assert space.fields["method"][0] == "fedprox"
    assert space.fields["method.loss"] == ["tce", "ce", "wsm", "fedlc"]
    assert space.fields["local.lr"] == [0.002, 0.006, 0.02, 0.06, 0.2]
    assert base.override(space.first[0]).same_as(base)
    assert space.size == 6 * 4 * 5 * 3, "methods, losses, rates, norms"
    assert not space.at_edge("local.lr", 0.02)
    assert space.at_edge("local.lr", 0.2)


def test_a_methods_own_options_are_kept():
    base = load_experiment({"method": {"name": "fedavgm", "server": {"name": "sgd", "lr": 0.7}}})
    space = default_space(base)
    assert base.override(space.first[0]).same_as(base)


def test_a_model_without_norms_has_none_to_choose():
    assert "model.norm" not in default_space(load_experiment({"model": "logistic"})).fields


def test_the_space_of_a_study():
    assert space_of(Study.parse({"grid": {"local.lr": [1, 2]}})).size == 2
    ranged = space_of(Study.parse({"random": {"trials": 7, "fields": {"local.lr": {"low": 1, "high": 2}}}}))
    assert (ranged.size, ranged.most) == (float("inf"), 7)
    assert space_of(Study.parse({"variants": {"a": {"rounds": 1}, "b": {"rounds": 2}}})).size == 2
    with pytest.raises(ConfigError, match="a search needs two"):
        space_of(Study.parse({"list": [{}]}))


def test_the_finalists_seeds():
    """Those of the file; or the three after the base's."""
    assert goal_of(Study.read(GOOD)).seeds == (1, 2)
    without = {key: value for key, value in GOOD.items() if key != "seeds"}
    assert goal_of(Study.read(without, {"seed": 5})).seeds == (6, 7, 8)


def test_an_unknown_field_of_the_space_is_named():
    with pytest.raises(ConfigError, match=r"local\.lrr"):
        Study.read({"base": BASE, "grid": {"local.lrr": [1, 2]}})


def test_halving(whole):
    """Rungs 3 and 9. Each candidate is tried once; the one that learns is first; the rest is ruled out."""
    found, said = whole
    assert found.rungs == (3, 9)
    assert not found.spent
    assert len(found.candidates) == 4
    best = found.finalists[0]
    assert best.changes == {"local.lr": 0.5}
    assert best.pilot.rounds == 9
    assert {seed: pilot.rounds for seed, pilot in best.seeds.items()} == {1: 9, 2: 9}
    lost = next(one for one in found.candidates if one.changes == {"local.lr": 1e30})
    assert "did not converge" in lost.reason
    assert all(bool(one.reason) != (one in found.finalists) for one in found.candidates)
    assert said[-1] == "finalists: seed 2 is done"


def test_a_candidate_that_cannot_be_run_is_ruled_out_with_the_reason(tmp_path):
    base = load_experiment(BASE)
    space = space_of(Study.parse({"list": [{"local.lr": 0.5}, {"method.server.name": "nonsense"}]}))
    found = Search(SearchGoal(base, space, (1,)), tmp_path, 600).run()
    (refused,) = [one for one in found.candidates if one.experiment is None]
    assert "there is no server step 'nonsense'" in refused.reason


def test_a_pilot_that_pauses_is_ruled_out_and_the_search_goes_on(tmp_path, monkeypatch):
    reach = Pilots.reach

    def pausing(self, candidate, rounds):
        if candidate.local.lr == 0.5:
            raise PausedError("too few clients")
        return reach(self, candidate, rounds)

    monkeypatch.setattr(Pilots, "reach", pausing)
    found = searched(tmp_path, {**GOOD, "list": [{"local.lr": 0.5}, {"local.lr": 0.1}], "seeds": [1]})
    assert [(one.changes["local.lr"], one.reason) for one in found.candidates if one.reason] == [
        (0.5, "too few clients")
    ]
    assert [one.changes["local.lr"] for one in found.finalists] == [0.1]


def test_every_candidate_is_tried_and_printed_once(tmp_path):
    """Six candidates, of which one is asked for three times; three have whole pilots, so nine sentences."""
    rates = [0.5, 0.3, 0.1, 0.03, 0.01, 0.003]
    space = Space({"local.lr": rates}, ({"local.lr": 0.1},) * 3)
    said = []
    found = Search(SearchGoal(load_experiment(BASE), space, (1,)), tmp_path, 600, said.append).run()
    assert found.candidates[0].changes == {"local.lr": 0.1}
    assert sorted(one.changes["local.lr"] for one in found.candidates) == sorted(rates)
    assert sorted(one.pilot.rounds for one in found.candidates) == [3, 3, 3, 9, 9, 9]
    first = {one.changes["local.lr"]: judged_at(one, 3) for one in found.candidates}
    whole = {one.changes["local.lr"] for one in found.candidates if one.pilot.rounds == 9}
    assert min(first[rate] for rate in whole) >= max(first[rate] for rate in set(rates) - whole)
    assert len([line for line in said if "after" in line]) == len(set(said[:-1])) == 6 + 3
    states = [(state, times) for _, state, times in trials(tmp_path)]
    assert sorted(states) == sorted([("COMPLETE", 2)] * 3 + [("PRUNED", 1)] * 3 + [("FAIL", 0)] * 2)


def judged_at(candidate, rung):
    return judged(overall_values(candidate.pilot.run.records, "validation_accuracy"), rung)


def test_a_range_is_drawn_from(tmp_path):
    ranged = {"trials": 4, "fields": {"local.lr": {"low": 0.01, "high": 1.0, "log": True}}}
    study = {"base": BASE, "random": ranged, "seeds": [1]}
    found = searched(tmp_path, study)
    assert len({one.changes["local.lr"] for one in found.candidates}) == 4
    assert shown(searched(tmp_path, study)) == shown(found)


def test_with_more_time_more_is_tried_on_the_same_rung(whole, tmp_path, monkeypatch):
    """No time after the first candidate, which then has a whole pilot; later there is time for the others."""
    monkeypatch.setattr(search, "FIRST", 0.0)
    few = searched(tmp_path)
    assert [one.pilot.rounds for one in few.candidates] == [9]
    monkeypatch.undo()
    assert shown(searched(tmp_path)) == shown(whole[0])


def shown(found):
    """What a search has found, without the times."""
    return [
        (
            one.changes,
            one.pilot and (one.pilot.rounds, one.pilot.accuracy, one.pilot.forgetting),
            one.reason,
            {seed: pilot.accuracy for seed, pilot in one.seeds.items()},
        )
        for one in found.candidates
    ]


def trials(folder):
    """Each trial of the search in a folder: its parameters, its state, and how often it was judged."""
    storage = f"sqlite:///{folder / DATABASE}"
    (name,) = optuna.get_all_study_names(storage)
    study = optuna.load_study(study_name=name, storage=storage)
    return [
        (json.dumps(one.params), one.state.name, len(one.intermediate_values)) for one in study.get_trials()
    ]


def test_equal_choices_are_one(tmp_path):
    space = Space({}, variants=({"local.lr": 0.5},) * 3)
    found = Search(SearchGoal(load_experiment(BASE), space, (1,)), tmp_path, 600).run()
    assert len(found.candidates) == 1
    assert [times for _, _, times in trials(tmp_path)] == [2, 0, 0], "the first has both rungs"


@pytest.mark.parametrize("after", [2, 5, 7, 10])
def test_a_search_that_is_killed_goes_on(whole, tmp_path, monkeypatch, after):
    """Killed on the first rung, on the last one (twice), in the finals: the end is the same."""
    reach, left = Pilots.reach, [after]

    def kill(self, candidate, rounds):
        left[0] -= 1
        if not left[0]:
            raise Killed
        return reach(self, candidate, rounds)

    monkeypatch.setattr(Pilots, "reach", kill)
    with pytest.raises(Killed):
        searched(tmp_path / "killed")
    found = searched(tmp_path / "killed")
    assert shown(found) == shown(whole[0])
    assert [one.changes for one in found.finalists] == [one.changes for one in whole[0].finalists]
    assert found.used > 0


def test_a_budget_that_is_spent_says_so_and_goes_on_with_a_larger_one(tmp_path):
    spent = searched(tmp_path, budget=1e-6)
    assert spent.spent
    assert spent.finalists == ()
    more = searched(tmp_path, budget=spent.used + 600)
    assert not more.spent
    assert more.finalists[0].changes == {"local.lr": 0.5}
    assert more.used > spent.used
    answer = searched(tmp_path, budget=1e-6)
    assert shown(answer) == shown(more), "what was found costs nothing to repeat"


def test_forgetting_counts_by_its_weight(whole):
    goal = goal_of(Study.read(GOOD), 2.0)
    pilot = whole[0].finalists[0].pilot
    assert goal.value(pilot) == pytest.approx(pilot.accuracy - 2 * pilot.forgetting)
    assert goal.key != goal_of(Study.read(GOOD)).key
