import pandas as pd
import pytest
from stories import HOLE, REPEATED, expected, interrupted

import mnemos
from mnemos.runs.run import runs_in


def contents(path, run):
    """{name: {round: value}} of a file in which no round has a name twice."""
    frame = pd.read_csv(path)
    assert list(frame.columns) == ["run", "round", "name", "value"]
    assert set(frame["run"]) == {run.path.name}
    assert not frame.duplicated(["round", "name"]).any()
    return {
        name: dict(zip(rows["round"], rows["value"], strict=True)) for name, rows in frame.groupby("name")
    }


def whole(run):
    return {**expected(run), "final_accuracy": {run.status.rounds: run.accuracy}}


def test_a_row_for_each_number(tiny, tmp_path):
    run = mnemos.run(tiny, out=tmp_path, track=["csv"])
    assert contents(run.file("metrics.csv"), run) == whole(run)


@pytest.mark.parametrize("story", [HOLE, REPEATED])
def test_resuming_neither_repeats_nor_loses_rows(tiny, tmp_path, story):
    run = interrupted(tiny, tmp_path, ["csv"], **story)
    path = run.file("metrics.csv")
    path.write_bytes(path.read_bytes()[:-5])  # as a kill might leave it
    run = mnemos.resume(run.path, track=["csv"])
    assert contents(path, run) == whole(run)
    run = mnemos.resume(run.path, rounds=5, track=["csv"])
    assert contents(path, run) == whole(run)


def test_a_folder_for_several_runs(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for seed in (0, 1):
        mnemos.run(tiny, {"seed": seed}, out=tmp_path / "runs", track=["csv:folder=~/tables/new"])
    for run in runs_in(tmp_path / "runs"):
        assert contents(tmp_path / "tables" / "new" / f"{run.path.name}.csv", run) == whole(run)
        assert not run.file("metrics.csv").exists()


def test_a_folder_that_cannot_be_made_is_no_reason_to_stop(tiny, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="tracking by csv is off"):
        run = mnemos.run(tiny, out=tmp_path / "runs", track=[f"csv:folder={tmp_path / 'file'}"])
    assert run.status.status == "finished"
