"""The net of experiments, tools/digests.py: digests that repeat, comparisons that miss nothing, coverage."""

import json
import os
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

import mnemos

TOOLS = Path(__file__).parents[1] / "tools"
THREE = ("method/fedavg/ce", "method/scaffold/ce", "resumed/method/scaffold/ce")


@pytest.fixture(scope="module")
def net():
    """The modules of the tool."""
    sys.path.append(str(TOOLS))  # at the end: site.py there isn't Python's
    try:
        names = ("digests", "digests_matrix", "digests_coverage")
        tool, matrix, coverage = (import_module(name) for name in names)
    finally:
        sys.path.remove(str(TOOLS))
    return SimpleNamespace(tool=tool, rows=matrix.ROWS, left_out=matrix.NOT_COVERED, coverage=coverage)


@pytest.fixture(scope="module")
def carried_out(net, tmp_path_factory):
    """Three experiments, carried out twice: (results, results of the second time, folder of the first)."""
    before = dict(os.environ)
    folders = [tmp_path_factory.mktemp(name) for name in ("once", "again")]
    rows = {name: net.rows[name] for name in THREE}
    results = [{name: result for name, result, _ in net.tool.run_rows(rows, folder)} for folder in folders]
    os.environ.clear()
    os.environ |= before
    return *results, folders[0]


@pytest.fixture
def compared(net, tmp_path, capsys):
    """Compare two doctored files: (exit code, lines)."""

    def compare(before, after, *words):
        about = {
            "commit": "c0ffee",
            "changed": False,
            "python": "",
            "torch": "",
            "numpy": "",
            "processor": "",
        }
        paths = [tmp_path / "before.json", tmp_path / "after.json"]
        for path, experiments in zip(paths, (before, after), strict=True):
            path.write_text(json.dumps({"about": about, "experiments": experiments}))
        code = net.tool.main(["compare", *map(str, paths), *words])
        return code, capsys.readouterr().out.splitlines()

    return compare


def digest(text, norm=1.0):
    return {"sha256": text, "size": 2, "norm": norm}


def result(**digests):
    return {"rounds": 2, "digests": {name.replace("__", "/"): digest(text) for name, text in digests.items()}}


BEFORE = {"a": result(model="1", metrics__loss="2"), "b": result(model="3", state__server__c="4")}


def test_two_runs_have_the_same_digests(carried_out):
    once, again, _ = carried_out
    assert once == again
    assert all(result["rounds"] == 4 for result in once.values())
    fedavg, scaffold = (once[name]["digests"] for name in THREE[:2])
    assert {"model", "state/model", "metrics/test_accuracy", "metrics/test_loss"} <= fedavg.keys()
    assert "clients" not in fedavg
    assert {"clients", "state/state/scaffold.c"} <= scaffold.keys()
    assert fedavg["model"] != scaffold["model"]


def test_a_resumed_run_is_like_the_whole_one(net, carried_out):
    rows, results = {name: net.rows[name] for name in THREE}, carried_out[0]
    assert list(net.tool.unlike(rows, results)) == []
    other = {**results, THREE[2]: results[THREE[0]]}
    (sentence,) = net.tool.unlike(rows, other)
    assert sentence.startswith("resumed/method/scaffold/ce differs from method/scaffold/ce: clients (gone), ")


def test_one_bit_of_the_servers_state_is_seen(net, carried_out):
    """The last byte of the newest checkpoint belongs to one of its tensors."""
    results, _, folder = carried_out
    (path,) = (folder / f"run-{THREE.index('method/scaffold/ce')}").iterdir()
    newest = max((path / "checkpoints").iterdir())
    data = newest.read_bytes()
    newest.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    found = net.tool.digests_of(mnemos.Run.at(path))
    newest.write_bytes(data)
    known = results["method/scaffold/ce"]["digests"]
    (changed,) = (name for name in known if found[name] != known[name])
    assert changed.startswith("state/")


def test_the_same_files_are_the_same(compared):
    code, lines = compared(BEFORE, BEFORE)
    assert (code, lines[-1]) == (0, "2 the same, 0 differs, 0 differs as expected, 0 unknown before")


def test_what_differs_is_named(compared):
    after = {**BEFORE, "b": {"rounds": 3, "digests": {"model": digest("3x", 1.5)}}, "c": result(model="5")}
    del after["a"]
    code, lines = compared(BEFORE, after)
    assert code == 1
    assert lines[2:] == [
        "differs: a: missing experiment",
        "differs: b: rounds (2 → 3), model (norm 1 → 1.5), state/server/c (gone)",
        "differs: c: new experiment",
        "0 the same, 3 differs, 0 differs as expected, 0 unknown before",
    ]


def test_what_is_announced_may_differ(compared):
    after = {"a": result(model="1x", metrics__loss="2"), "b": BEFORE["b"]}
    assert compared(BEFORE, after, "--expect", "b")[0] == 1
    code, lines = compared(BEFORE, after, "--expect", "a,b")
    assert code == 0
    assert lines[2:4] == [
        "differs as expected: a: model (norm 1 → 1)",
        "expected to differ, and the same: b",
    ]
    assert compared(BEFORE, after, "--expect", "[ax]")[0] == 0
    code, lines = compared(BEFORE, after, "--expect", "a,c")
    assert code == 1
    assert "there is no experiment c" in lines


def test_names_may_change_if_it_is_said(compared, tmp_path):
    after = {
        "a": result(model="1", metrics__risk="2", metrics__extra="9"),
        "b": result(model="3", state__c="4"),
    }
    maps = tmp_path / "maps"
    maps.write_text("# what was renamed\nmetrics/loss = metrics/risk  # a better word\n\n=metrics/extra\n")
    state = "state/server/*=state/*"
    assert compared(BEFORE, after)[0] == 1
    assert compared(BEFORE, after, "--maps", str(maps))[0] == 1
    assert compared(BEFORE, after, "--maps", str(maps), "--map", state)[0] == 0
    # A new name doesn't hide another value, and neither does a digest that is new by announcement.
    after["a"]["digests"]["metrics/risk"] = digest("2x")
    assert compared(BEFORE, after, "--maps", str(maps), "--map", state)[0] == 1
    code, lines = compared(BEFORE, BEFORE, "--map", "metrics/loss=", "--map", "metrics/none=metrics/any")
    assert code == 1
    assert "no digest has a name for the mapping metrics/none=metrics/any" in lines
    gone = {"a": result(model="1"), "b": BEFORE["b"]}
    assert compared(BEFORE, gone, "--map", "metrics/loss=")[0] == 0
    with pytest.raises(SystemExit, match="allowed: OLD=NEW"):
        compared(BEFORE, after, "--map", "metrics/loss")


def test_unknown_parts_are_said_to_be_unknown(net, compared, tmp_path):
    row = net.rows["method/fedavg/ce"]
    new = replace(row, experiment={**row.experiment, "method": "of-tomorrow"})
    found = net.tool.run_row(new, tmp_path, tmp_path / "out")
    assert "there is no method 'of-tomorrow'" in found["unknown"]
    code, lines = compared({"a": found}, {"a": BEFORE["a"]})
    assert code == 0
    assert lines[2].startswith("unknown before: a: unknown there (before): ")
    assert compared({"a": BEFORE["a"]}, {"a": found})[0] == 1
    assert compared({"a": found}, {"a": found})[0] == 0
    assert compared({"a": found}, {"a": {"failed": "a reason"}})[0] == 1


def test_what_fails_is_said_to_fail(net, tmp_path):
    row = net.rows["method/fedavg/ce"]
    (tmp_path / "out").mkdir()
    bad = replace(row, experiment={**row.experiment, "min_clients": 100})
    found = net.tool.run_row(bad, tmp_path, tmp_path / "out")
    assert found.keys() == {"failed"}


def test_every_part_has_an_experiment(net):
    """A part that is registered without one fails here: digests_matrix.py takes another row."""
    assert net.coverage.parts_left(net.rows.values()) == []
    without = [row for row in net.rows.values() if "scaffold" not in json.dumps(row.experiment)]
    assert net.coverage.parts_left(without) == ["method scaffold", "correction scaffold"]


def test_what_is_left_out_exists(net):
    known = net.coverage.registered(mnemos.Experiment)
    assert all(set(names) <= set(known[kind]) for kind, names in net.left_out.items())


def test_twins_are_the_same_experiment(net):
    assert len(net.rows) >= 90
    for row in net.rows.values():
        if row.like:
            twin = net.rows[row.like]
            assert {**row.experiment, "engine": ""} == {**twin.experiment, "engine": ""}
        assert row.interrupt is None or row.interrupt < row.experiment["rounds"]
