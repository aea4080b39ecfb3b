import json
import socket
import struct
import sys
from pathlib import Path

import pytest
from stories import HOLE, REPEATED, expected, interrupted

import mnemos
from mnemos.errors import ConfigError
from mnemos.track.sink import parameters
from support.play import small
from support.processes import wait_for

OFFLINE = ["wandb:project=tests,mode=offline"]
_BLOCK, _HEAD = 32768, 7


def records(path):
    """The records of a W&B file: blocks of pieces with checksum, length and kind, as in LevelDB's log."""
    from wandb.proto.wandb_internal_pb2 import Record  # which takes seconds to import

    data, place, piece = path.read_bytes(), _HEAD, b""
    while place + _HEAD <= len(data):
        if _BLOCK - place % _BLOCK < _HEAD:
            place += _BLOCK - place % _BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        piece += data[place + _HEAD : place + _HEAD + length]
        place += _HEAD + length
        if kind in (1, 4):  # whole, or the last piece
            yield Record.FromString(piece)
            piece = b""


class Offline:
    """What an offline folder holds."""

    def __init__(self, folder):
        (path,) = folder.glob("*.wandb")
        found = _complete(path)
        self.text = path.read_bytes()
        self.rows = [_items(record.history.item) for record in found if record.HasField("history")]
        (self.run,) = [record.run for record in found if record.HasField("run")]
        self.config = _items(self.run.config.update)
        self.exit_code = [record.exit.exit_code for record in found if record.HasField("exit")]
        self.summary = {}
        for record in found:
            self.summary |= _items(record.summary.update)
        self.kinds = {record.WhichOneof("record_type") for record in found}

    @property
    def history(self):
        """{name: [(round, value)]}"""
        names = {name for row in self.rows for name in row if not name.startswith("_")}
        return {name: [(row["_step"], row[name]) for row in self.rows if name in row] for name in names}


def _complete(path):
    """The records up to the end of the run, which W&B's own process may not have written yet."""

    def whole():
        found = [*records(path)]
        return found if any(record.HasField("exit") for record in found) else None

    return wait_for(whole, f"the end of {path}")


def _items(items):
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


def folders(run):
    """The offline folders of a run, oldest first."""
    found = [path for path in run.file("wandb").glob("offline-run-*") if path.is_dir()]
    return sorted(found, key=lambda path: path.stat().st_ctime_ns)


def whole(run):
    return {name: sorted(rounds.items()) for name, rounds in expected(run).items()}


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A run, and what its only offline folder holds: W&B's own process takes a while to end."""
    experiment = small(participation=0.5, rounds=4, evaluate={"every": 2, "test_last": 2})
    run = mnemos.run(experiment, out=tmp_path_factory.mktemp("runs"), track=OFFLINE)
    (folder,) = folders(run)
    return run, Offline(folder)


def test_history_configuration_and_summary(watched):
    run, found = watched
    assert found.history == whole(run)
    assert {name: value for name, value in found.config.items() if name != "_wandb"} == parameters(
        run.experiment
    )
    assert found.summary["final_accuracy"] == run.accuracy
    assert found.summary["status"] == "finished"
    assert found.exit_code == [0]
    assert (found.run.project, found.run.display_name) == ("tests", run.path.name)


def test_nothing_about_the_machine_the_code_or_the_terminal(watched):
    run, found = watched
    (folder,) = folders(run)
    assert found.run.host == ""
    assert not found.run.HasField("git")
    assert not found.kinds & {"stats", "output", "output_raw", "files", "artifact", "environment"}
    assert [*folder.glob("files/*")] == []
    for secret in (str(Path.cwd()), str(run.path.parent), str(Path.home()), sys.executable, "pytest"):
        assert secret.encode() not in found.text
    assert socket.gethostname() not in [found.run.host, *map(str, found.config.values())]


@pytest.mark.parametrize("story", [HOLE, REPEATED])
def test_resuming_keeps_the_id_and_each_folder_has_each_round_once(tiny, tmp_path, story):
    """`wandb sync` replaces what an earlier folder of the same id has uploaded: the last must be complete."""
    run = interrupted(tiny, tmp_path, OFFLINE, **story)
    run = mnemos.resume(run.path, track=OFFLINE)
    first, second = map(Offline, folders(run))
    assert first.run.run_id == second.run.run_id
    assert first.exit_code == [1]
    assert first.summary["status"] == "interrupted"
    assert second.history == whole(run)


def test_online_the_service_says_which_rounds_it_has(tiny, tmp_path, monkeypatch):
    """W&B's step of a resumed run is the one after its last."""
    import wandb

    asked, logged = {}, []

    class Run:
        starting_step = 4

        def __init__(self):
            self.summary = {}

        def log(self, values, step, commit):
            logged.append(step)

        def finish(self, exit_code):
            pass

    def init(**options):
        asked.update(options)
        return Run()

    monkeypatch.setattr(wandb, "init", init)
    monkeypatch.setattr(wandb, "login", lambda **_: True)
    run = interrupted(tiny, tmp_path, OFFLINE, **HOLE)
    identifier = asked["id"]
    logged.clear()
    mnemos.resume(run.path, rounds=6, track=["wandb:mode=online,entity=us"])
    assert logged == [4, 5, 6]
    assert asked["id"] == identifier
    assert (asked["mode"], asked["resume"], asked["entity"]) == ("online", "allow", "us")


def test_the_environment_says_whether_to_be_online(tiny, tmp_path, monkeypatch):
    import wandb

    monkeypatch.setattr(wandb, "login", lambda **_: False)
    with pytest.raises(ConfigError, match=r"track.wandb: you are not logged in to W&B; .*mode=offline"):
        mnemos.run(tiny, out=tmp_path / "runs", track=["wandb"])
    assert not (tmp_path / "runs").exists()


def test_without_the_package(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match=r"track.wandb: it needs the package wandb .*extra 'track'"):
        mnemos.run(tiny, out=tmp_path / "runs", track=["wandb"])
    assert not (tmp_path / "runs").exists()
