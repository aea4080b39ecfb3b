"""What ends a run from outside is one sentence and an exit code, and what was finished is saved."""

import json
import os
import resource
import shutil
import sys
from pathlib import Path

import pytest

import mnemos
from mnemos.cli.app import main
from mnemos.common.files import locked, write_atomically
from mnemos.common.shortage import shortage
from mnemos.errors import MnemosError
from mnemos.experiment.experiment import load_experiment
from mnemos.report.live import Latest, serve
from mnemos.runs.execute import Silent, resume, start
from mnemos.runs.run import Run
from mnemos.runs.stops import StoppedError
from mnemos.studies import pool
from mnemos.studies.study import Study
from support.processes import LONG, forked, started, wait_for

WORDS = "model.hidden=[4] partition.clients=10 local.steps=1 engine=serial method=scaffold --quiet"


def begun(folder):
    """The run in a folder, once it has finished some rounds."""

    def some():
        found = list(folder.glob("runs/*/checkpoints/round-*[2-9].safetensors"))
        return found[0].parents[1] if found else None

    return Run(wait_for(some, "rounds"))


def sentence(process, folder):
    """What a process has said on the way out."""
    process.join(LONG)
    assert process.exitcode == 1
    (line,) = (folder / "err").read_text().splitlines()
    return line.removeprefix("error: ")


def test_a_directory_that_is_moved(tmp_path):
    with started(f"run {WORDS} rounds=1000000".split(), tmp_path) as process:
        run = begun(tmp_path)
        run.path.rename(tmp_path / "moved")
        line = sentence(process, tmp_path)
    assert line == (
        f"runs/{run.path.name}: its directory was moved during the run, to {tmp_path}/moved, where the "
        f"finished rounds are; 'mnemos resume {tmp_path}/moved' continues it"
    )
    assert not run.path.exists()
    moved = Run.at(tmp_path / "moved")
    assert moved.status.status == "interrupted"
    # It ends like a run that was never moved.
    rounds = moved.saved_rounds + 2
    resume(moved.path, rounds)
    whole = start(load_experiment(moved.experiment, {"rounds": rounds}), tmp_path / "whole")
    assert moved.metrics.query("name == 'train_loss'").equals(whole.metrics.query("name == 'train_loss'"))


def test_a_directory_that_is_removed(tmp_path):
    with started(f"run {WORDS} rounds=1000000".split(), tmp_path) as process:
        run = begun(tmp_path)
        shutil.rmtree(run.path, ignore_errors=True)  # it may be written to at this very moment
        line = sentence(process, tmp_path)
    assert line.startswith(f"runs/{run.path.name}: its directory was removed or replaced during the run; ")


def test_another_directory_in_the_place_of_a_runs_is_left_alone(tmp_path):
    with started(f"run {WORDS} rounds=1000000".split(), tmp_path) as process:
        run = begun(tmp_path)
        theirs = tmp_path / "theirs"
        (theirs / "checkpoints").mkdir(parents=True)
        (theirs / ".lock").touch()
        (theirs / "status.json").write_text('{"status": "finished"}')
        run.path.rename(tmp_path / "moved")
        theirs.rename(run.path)
        before = {path.name for path in run.path.rglob("*")}
        line = sentence(process, tmp_path)
    assert f"moved during the run, to {tmp_path}/moved" in line
    left = {path.name for path in run.path.rglob("*")}
    # At most the checkpoint that was being written when they were exchanged.
    assert {name for name in left - before if not name.startswith(("round-", ".round-"))} == set()
    assert json.loads(run.file("status.json").read_text()) == {"status": "finished"}


@pytest.mark.parametrize("replaced", [True, False])
def test_a_directory_that_is_moved_while_a_checkpoint_is_saved(replaced, tiny, tmp_path, monkeypatch):
    """After the file is written, before the older ones are listed: the directory there now has none."""

    def write(path, data, **options):
        write_atomically(path, data, **options)
        if path.stem.endswith("2"):
            path.parents[1].rename(tmp_path / "moved")
            if replaced:
                path.parent.mkdir(parents=True)
                (path.parents[1] / ".lock").touch()

    monkeypatch.setattr("mnemos.runs.checkpoint.write_atomically", write)
    with pytest.raises(StoppedError, match=f"moved during the run, to {tmp_path}/moved, where"):
        start(load_experiment(tiny), tmp_path / "runs")
    assert Run.at(tmp_path / "moved").saved_rounds == 2


def test_a_full_disk(tmp_path, tiny):
    """Whatever is written to /dev/full finds no room: the system's own error, and a real process."""
    other = mnemos.run({**tiny, "rounds": 4}, out=tmp_path / "other")
    resume(other.path, 6)
    run = mnemos.run({**tiny, "rounds": 4}, out=tmp_path)
    timing = run.file("timing.jsonl")
    kept = timing.read_bytes()
    timing.unlink()
    timing.symlink_to("/dev/full")
    with started(["resume", run.path, "--rounds", 6, "--quiet"], tmp_path) as process:
        line = sentence(process, tmp_path)
    assert line == (
        f"{run.path}: the disk has no room left (No space left on device); free some; finished rounds are "
        f"saved, and 'mnemos resume {run.path}' continues it"
    )
    assert (run.status.status, run.status.rounds) == ("failed", 5)
    assert run.status.message == line
    timing.unlink()
    timing.write_bytes(kept)
    resume(run.path)
    for name in ("metrics.jsonl", "model.safetensors"):
        assert run.file(name).read_bytes() == other.file(name).read_bytes()


@pytest.mark.parametrize("limit", [2_000, 30_000])
def test_a_file_that_may_not_grow(limit, tmp_path, tiny):
    """The smaller limit is met in the first round, the larger by the metrics, in the midst of a line."""
    described = {**tiny, "rounds": 200, "evaluate": {"every": 1}, "measures": ["class-accuracy"]}
    (tmp_path / "e.yaml").write_text(load_experiment(described).to_yaml())
    with forked(_limited, limit, str(tmp_path)) as process:
        line = sentence(process, tmp_path)
    assert "a file would be larger than the system allows" in line
    (run,) = (Run(path.parent) for path in tmp_path.glob("runs/*/experiment.yaml"))
    assert run.status.status == "failed"
    assert run.status.rounds == run.saved_rounds
    done = run.saved_rounds
    assert (done > 0) == (limit > 2_000)
    resume(run.path, done + 2)
    whole = mnemos.run(described, {"rounds": done + 2}, out=tmp_path / "whole")
    rows = "name == 'train_loss'"
    assert run.metrics.query(rows).equals(whole.metrics.query(rows))


def _limited(limit, folder):
    os.chdir(folder)
    for name, number in (("out", 1), ("err", 2)):
        with Path(name).open("wb") as file:
            os.dup2(file.fileno(), number)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    sys.argv = ["mnemos", "run", "e.yaml", "--quiet"]
    main()


@pytest.mark.parametrize(
    "words",
    [
        "run rounds=3 engine.name=threads engine.workers=2 participation=0.5 --quiet",
        "run rounds=3 engine=serial --quiet",  # in the evaluation
        "watch",
    ],
)
def test_no_room_for_another_thread(words, tmp_path):
    (tmp_path / "runs").mkdir()
    with forked(_without_threads, words.split(), str(tmp_path)) as process:
        line = sentence(process, tmp_path)
    assert "the system has no room for another thread; end some, raise the limit (ulimit -u), or use" in line
    for path in tmp_path.glob("runs/*"):
        assert line.startswith(f"runs/{path.name}: ")
        assert Run(path).status.status == "failed"
        resume(path)
        assert Run(path).status.status == "finished"


def _without_threads(words, folder):
    import _thread
    import threading

    def refuse(*_):
        raise RuntimeError("can't start new thread")  # as the system's refusal reads in Python

    os.environ["MNEMOS_CORES"] = "2"
    _thread.start_new_thread = threading._start_new_thread = refuse
    os.chdir(folder)
    for name, number in (("out", 1), ("err", 2)):
        with Path(name).open("wb") as file:
            os.dup2(file.fileno(), number)
    sys.argv = ["mnemos", *words]
    main()


def test_a_page_without_room_for_a_thread_says_so_once_a_request(monkeypatch, capsys):
    import threading
    import urllib.error
    import urllib.request

    with serve(lambda: "page", Latest(dict, lambda: 0)) as address:

        def refuse(*_):
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading, "_start_new_thread", refuse)
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            urllib.request.urlopen(address, timeout=60)
        monkeypatch.undo()
    assert capsys.readouterr().err.splitlines() == [
        "the system has no room for another thread; end some, raise the limit (ulimit -u), or use fewer "
        "(MNEMOS_CORES=1)"
    ]


class Remove(Silent):
    """Removes a file of the run after a round."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def round(self, outcome):
        if outcome.round == 2:
            self.run.file(self.name).unlink()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("metrics.jsonl", "metrics.jsonl can't be read or written (it was removed)"),
        (".lock", "its directory was removed or replaced"),
    ],
)
def test_a_file_of_a_run_that_is_removed(name, says, tiny, tmp_path):
    """Its name is gone, and what would be appended to it would be seen by nobody."""
    with pytest.raises(StoppedError) as stopped:
        start(load_experiment(tiny), tmp_path, remove := Remove(name))
    assert says in str(stopped.value)
    assert remove.run.saved_rounds == 2


def test_an_error_of_the_users_own_code_stays_as_it_is(tiny, tmp_path, monkeypatch):
    """A file that a data set lacks, or a mistake of a program, is none of the run's directory."""

    class Fails(Silent):
        def round(self, outcome):
            raise FileNotFoundError(2, "No such file or directory", str(tmp_path / "elsewhere"))

    with pytest.raises(FileNotFoundError, match="elsewhere"):
        start(load_experiment(tiny), tmp_path / "runs", Fails())
    (run,) = (Run(path) for path in (tmp_path / "runs").iterdir())
    assert run.status.message.startswith("FileNotFoundError: ")


def test_a_directory_that_cannot_be_begun_leaves_nothing(tiny, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mnemos.runs.run.write_atomically", full)
    with pytest.raises(MnemosError, match=r"the run's directory can't be made \(No space left on device\)"):
        start(load_experiment(tiny), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_study_that_is_stopped_says_why_and_not_what_else_fails(tiny, tmp_path, monkeypatch):
    """Its record can't be written either."""

    def stopped(*_):
        shutil.rmtree(tmp_path / "runs")
        raise StoppedError("the disk has no room left")

    monkeypatch.setattr(pool, "perform", stopped)
    cases = Study.read({"base": tiny, "list": [{"local.lr": 0.1}], "seeds": [0]}).cases()
    (tmp_path / "runs").mkdir()
    with pytest.raises(StoppedError, match="the disk has no room left"):
        pool.in_turn(cases, tmp_path / "runs", lambda _case: Silent(), name="study")


def test_where_a_lock_is_now(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    with locked(folder / ".lock") as lock:
        assert lock.moved() is None
        folder.rename(tmp_path / "b")
        assert lock.moved() == tmp_path / "b"
        shutil.rmtree(tmp_path / "b")
        with pytest.raises(FileNotFoundError):
            lock.moved()


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(28, os.strerror(28), "a"), "no room left for a"),
        (OSError(122, os.strerror(122)), "no room left"),
        (OSError(27, os.strerror(27)), "ulimit -f"),
        (OSError(24, os.strerror(24)), "ulimit -n"),
        (BlockingIOError(11, os.strerror(11)), "another process"),
        (BlockingIOError(11, "write could not complete without blocking"), None),
        (OSError(2, os.strerror(2)), None),
        (RuntimeError("can't start new thread"), "another thread"),
        (RuntimeError("shapes don't fit"), None),
        (ValueError("No space left on device"), None),
    ],
)
def test_what_is_missing(error, says):
    found = shortage(error)
    assert found is None if says is None else says in found
