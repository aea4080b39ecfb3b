"""Studies: which experiments they ask for, and what their variants are called."""

import json

import pytest

from mnemos.errors import ConfigError
from mnemos.runs.run import Run
from mnemos.studies.study import Range, Study, record


def names(study):
    return list(dict.fromkeys(case.variant for case in Study.read(study).cases()))


def variants(study):
    """One experiment a variant."""
    return {case.variant: case.experiment for case in Study.read({**study, "seeds": [0]}).cases()}


def test_variants_keep_their_names_and_come_with_every_seed():
    cases = Study.read({"variants": {"b": {}, "a": {"local.lr": 1}}, "seeds": [4, 2]}, {"rounds": 7}).cases()
    assert [str(case) for case in cases] == ["b, seed 4", "b, seed 2", "a, seed 4", "a, seed 2"]
    assert [case.experiment.seed for case in cases] == [4, 2, 4, 2]
    assert [case.experiment.local.lr for case in cases] == [0.05, 0.05, 1, 1]
    assert {case.experiment.rounds for case in cases} == {7}


def test_a_grid_is_all_combinations_the_last_field_first():
    found = variants({"grid": {"method.loss": ["ce", "wsm"], "local.lr": [0.1, 1e-3]}})
    assert list(found) == ["loss=ce, lr=0.1", "loss=ce, lr=0.001", "loss=wsm, lr=0.1", "loss=wsm, lr=0.001"]
    facts = [(type(e.method.loss).name, e.local.lr) for e in found.values()]
    assert facts == [("ce", 0.1), ("ce", 1e-3), ("wsm", 0.1), ("wsm", 1e-3)]


def test_a_grid_of_whole_parts():
    """A part's own options are changed after it, whatever their order in the file."""
    server = {"name": "adam", "lr": 0.5}
    found = variants(
        {"grid": {"method.loss": ["wsm"], "method": ["fedavg", {"name": "fedopt", "server": server}]}}
    )
    assert list(found) == ["method=fedavg", "method=fedopt(server=adam, server.lr=0.5)"]
    assert [type(e.method).name for e in found.values()] == ["fedavg", "fedopt"]
    assert [type(e.method.loss).name for e in found.values()] == ["wsm", "wsm"]


def test_a_list_has_a_change_of_its_own_each():
    found = variants({"list": [{}, {"local.lr": 1}, {"model": {"hidden": [8, 4]}, "local.augment": []}]})
    assert list(found) == ["base", "lr=1", "model=(hidden=[8, 4]), augment=[]"]
    assert [e.model.hidden for e in found.values()] == [(200,), (200,), (8, 4)]


@pytest.mark.parametrize(
    ("grid", "first"),
    [
        ({"local.lr": [1, 2], "method.server.lr": [3], "method": ["fedopt"]}, "lr=1"),
        ({"method.server.lr": [1, 2], "local.lr": [1, 2], "method": ["fedopt"]}, "server.lr=1, local.lr=1"),
        ({"partition.name": ["iid", "shards"]}, "partition=iid"),
        ({"local.steps": [None, 3]}, "steps=none"),
        ({"engine.exact": [True, False]}, "exact=true"),
        ({"partition.alpha": [0.1 + 0.2, 1]}, "alpha=0.3"),
        ({"rounds": [3]}, "rounds=3"),
    ],
)
def test_names_are_short(grid, first):
    assert names({"grid": grid})[0] == first


def test_what_all_have_in_common_is_no_part_of_a_name():
    assert names({"list": [{"rounds": 3, "local.lr": 1}, {"rounds": 3, "local.lr": 2}]}) == ["lr=1", "lr=2"]
    assert names({"list": [{"rounds": 3}, {"rounds": 3, "local.lr": 2}]}) == ["rounds=3", "lr=2"]


def test_names_that_look_the_same_are_told_apart():
    assert names({"grid": {"local.lr": [0.1, 0.1000000001]}}) == ["lr=0.1", "lr=0.1 #2"]


# --- random search ------------------------------------------------------------------------------------

SPACE = {
    "local.lr": {"low": 1e-3, "high": 1, "log": True},
    "local.epochs": {"low": 2, "high": 4, "whole": True},
    "participation": {"low": 0.5, "high": 0.75},
    "method.loss": ["ce", "wsm"],
}


def drawn(trials, **changes):
    return Study.read({"random": {"trials": trials, "fields": SPACE, **changes}, "seeds": [0]}).cases()


def test_draws_are_within_their_bounds_and_reach_all_of_them():
    found = [case.experiment for case in drawn(60)]
    assert len(found) == 60
    assert all(1e-3 <= e.local.lr <= 1 and 0.5 <= e.participation <= 0.75 for e in found)
    assert {e.local.epochs for e in found} == {2, 3, 4}
    assert {type(e.method.loss).name for e in found} == {"ce", "wsm"}
    assert 20 <= sum(e.local.lr < 0.03 for e in found) <= 40  # the middle of the orders of magnitude
    assert all(float(f"{e.local.lr:.4g}") == e.local.lr for e in found)


def test_more_trials_keep_the_earlier_ones():
    assert [c.experiment for c in drawn(9)][:4] == [c.experiment for c in drawn(4)]
    assert drawn(4) == drawn(4)
    assert drawn(4, seed=1) != drawn(4)


def test_another_field_does_not_change_the_draws_of_the_rest():
    more = {**SPACE, "local.batch": [8, 16]}
    assert [c.experiment.local.lr for c in drawn(5, fields=more)] == [c.experiment.local.lr for c in drawn(5)]


def test_a_draw_that_came_before_is_left_out():
    assert sorted(names({"random": {"trials": 50, "fields": {"method.loss": ["ce", "wsm"]}}})) == [
        "loss=ce",
        "loss=wsm",
    ]


@pytest.mark.parametrize(
    ("options", "shares"),
    [
        ({"low": 2, "high": 4}, {0.0: 2, 0.25: 2.5, 1.0: 4}),
        ({"low": 1e-4, "high": 1, "log": True}, {0.0: 1e-4, 0.5: 1e-2, 0.25: 1e-3}),
        ({"low": 1, "high": 3, "whole": True}, {0.0: 1, 0.3: 1, 0.34: 2, 0.66: 2, 0.67: 3, 0.9999: 3}),
        ({"low": 1, "high": 100, "whole": True, "log": True}, {0.0: 1, 0.5: 10}),
        ({"low": 0.12344, "high": 1}, {0.0: 0.12344}),
    ],
)
def test_a_share_of_the_way_by_hand(options, shares):
    for share, value in shares.items():
        assert Range.parse(options).draw(share) == pytest.approx(value, rel=1e-9)


# --- mistakes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("study", "says"),
    [
        ({}, "found none of them; expected exactly one of variants, grid, list, random"),
        (
            {"variants": {"a": {}}, "random": {"trials": 1, "fields": {"rounds": [1]}}},
            "found variants and random",
        ),
        ({"grid": {}}, "grid: found {}; expected at least 1"),
        ({"list": []}, "list: found "),
        ({"variants": {"a": {}}, "seeds": []}, "seeds: found "),
        ({"variants": {"a": {}}, "seeds": [1, 1]}, "seeds: found 1, 1; each seed can be used once"),
        ({"variants": {"a": {}}, "seeds": [True]}, "seeds: found [True]; expected a whole number"),
        (
            {"variants": {"a": {}, "b": {"local.lr": 0.05}}},
            "the variants 'a' and 'b' are the same experiment",
        ),
        ({"list": [{"seed": 1}, {"seed": 2}]}, "the variants 'seed=1' and 'seed=2' are the same experiment"),
        (
            {"random": {"trials": 1, "fields": {"rounds": {"low": 1, "high": 2.5, "whole": True}}}},
            "whole numbers",
        ),
        (
            {"random": {"trials": 1, "fields": {"local.lr": {"low": 0, "high": 1, "log": True}}}},
            "must be > 0",
        ),
        ({"random": {"trials": 1, "fields": {"local.lr": {"high": 1}}}}, "random.fields.local.lr.low: "),
        ({"random": {"trials": 1, "fields": {}}}, "random.fields: found {}"),
    ],
)
def test_mistakes_are_named(study, says, tmp_path):
    with pytest.raises(ConfigError) as error:
        Study.read(study)
    assert says in str(error.value)
    path = tmp_path / "study.yaml"
    path.write_text(json.dumps(study))
    with pytest.raises(ConfigError) as again:
        Study.read(path)
    assert str(again.value) == f"{path}: {error.value}"


def test_a_study_is_recorded_by_the_names_of_its_runs(tmp_path):
    path = record("rates", tmp_path, {"α": [Run(tmp_path / "one"), Run(tmp_path / "two")], "β": []})
    assert path == tmp_path / "rates.study.json"
    assert json.loads(path.read_text()) == {"name": "rates", "variants": {"α": ["one", "two"], "β": []}}
