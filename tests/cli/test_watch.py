"""`mnemos watch`: what a person sees of runs in progress."""

import signal

import pytest

import mnemos
from mnemos.cli.commands.watch import WatchedRuns
from mnemos.experiment.overrides import dump_yaml
from support.processes import Command, wait_for


@pytest.fixture
def finished(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return mnemos.run(tiny, out="runs")


def test_one_look(finished, command):
    shown = command("watch --once").out
    assert str(finished.path) in shown
    assert "finished" in shown
    assert "4/4" in shown
    assert f"{100 * finished.accuracy:.1f} %" in shown


def test_one_look_for_a_script(finished, command):
    (fact,) = command("watch --json").json["runs"]
    assert fact["run"] == str(finished.path)
    assert (fact["status"], fact["round"], fact["rounds"]) == ("finished", 4, 4)
    assert fact["accuracy"] == finished.accuracy
    assert fact["seconds_left"] is None


def test_a_damaged_run_does_not_hide_the_others(finished, tiny, command):
    mnemos.run(tiny, {"seed": 1}, out="runs").file("experiment.yaml").write_text("rounds: none")
    statuses = [fact["status"] for fact in command("watch --json").json["runs"]]
    assert statuses == ["damaged", "finished"]


def test_a_run_whose_process_is_gone_shows(finished):
    """A killed process writes nothing any more, so no file tells."""
    watched = WatchedRuns([finished.path.parent])
    finished.write_json("status.json", {**finished.read_json("status.json"), "status": "running"})
    with finished.lock():
        alive = watched.signature()
        assert [line.status for line in watched.lines()] == ["running"]
        assert watched.signature() == alive
    assert watched.signature() != alive
    assert [line.status for line in watched.lines()] == ["interrupted"]


def test_a_resume_for_longer_shows(finished):
    watched = WatchedRuns([finished.path.parent])
    assert [line.progress.rounds for line in watched.lines()] == [4]
    mnemos.resume(finished.path, 5)
    assert [line.progress.rounds for line in watched.lines()] == [5]


def test_runs_are_called_what_their_study_calls_them(tiny, tmp_path, command):
    study = tmp_path / "rates.yaml"
    study.write_text(dump_yaml({"base": tiny, "grid": {"local.lr": [0.01, 0.1]}, "seeds": [3]}))
    command(f"compare {study} --out {tmp_path}/runs --quiet")
    shown = command(f"watch --once {tmp_path}/runs").out
    assert "lr=0.01, seed 3" in shown
    assert "0 running, 2 of 2 ended" in shown
    labels = [fact["label"] for fact in command(f"watch --json {tmp_path}/runs").json["runs"]]
    assert sorted(labels) == ["lr=0.01, seed 3", "lr=0.1, seed 3"]


def test_a_folder_without_runs_is_watched(tmp_path, command):
    assert "no runs yet" in command(f"watch --once {tmp_path}").out


def test_a_folder_that_is_not_there(tmp_path, command):
    assert command(f"watch {tmp_path}/nowhere", 2).err.endswith("nowhere: there is no such folder\n")


def test_a_port_that_cannot_be(tmp_path, command):
    assert "65536" in command(f"watch --port 65536 {tmp_path}", 2).err


def test_it_follows_a_run_until_it_is_interrupted(tiny, tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    with Command("watch", folder, "--every", "0.1", cwd=tmp_path) as watching:
        assert watching.line(0).startswith("page: http://127.0.0.1:")
        run = mnemos.run(tiny, out=folder)
        wait_for(lambda: ": finished" in watching.out, "the end of the run")
        last = watching.out.splitlines()[-1]
        assert last == f"{run.path}: finished, round 4/4, accuracy {100 * run.accuracy:.1f} %"
        watching.send(signal.SIGINT)
        assert watching.ended().code == 0
