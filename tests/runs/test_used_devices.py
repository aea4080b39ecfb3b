"""Runs go on with the device that they were made on, or with another that is asked for, and say so.

The first rounds are done in a process that has pretend devices; most resumes in one that has none.
"""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch

import mnemos
from mnemos.client.messages import Arithmetic
from mnemos.engines.auto import Auto
from mnemos.engines.serial import Serial
from mnemos.engines.threads import Threads
from mnemos.engines.vmap import Vmap
from mnemos.errors import ConfigError
from mnemos.runs.run import Run
from mnemos.runs.used import UsedDevices, engine_for
from support.play import SMALL
from support.processes import Command

torch.set_num_threads(1)

WORDS = [f"{field}={json.dumps(value)}" for field, value in SMALL.items()]
CPU_ENTRY = {"device": "cpu", "name": "cpu", "precision": "float32", "deterministic": False}


def ended(*words, cwd, code=0, pretend=False):
    with Command(*words, cwd=cwd, pretend=pretend) as command:
        how = command.ended()
    assert how.code == code, how
    return how


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of three rounds on pretend:0, to be copied."""
    folder = tmp_path_factory.mktemp("made")
    how = ended("run", *WORDS, "--device", "pretend:0", "--json", cwd=folder, pretend=True)
    return folder / json.loads(how.out)["run"]


@pytest.fixture
def run(made, tmp_path):
    shutil.copytree(made, tmp_path / "runs" / "made")
    return Run.at(tmp_path / "runs" / "made")


def test_the_record_names_the_device_and_its_arithmetic(run):
    record = run.read_json("engine.json")
    assert record["engine"]["device"] == "pretend:0"
    assert record["arithmetic"]["device"] == "pretend"
    assert record["device"] == "Pretend accelerator 0"
    assert record["used"] == [
        {
            "round": 1,
            "device": "pretend:0",
            "name": "Pretend accelerator 0",
            "precision": "float32",
            "deterministic": False,
            "torch": torch.__version__,
        }
    ]


def test_without_its_device_a_run_does_not_go_on(run, tmp_path):
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    how = ended("resume", "runs/made", "--rounds", 5, cwd=tmp_path, code=2)
    assert how.err == (
        "error: engine.device: the run was made on pretend:0 (Pretend accelerator 0), which isn't here; "
        "there is cpu; 'mnemos resume runs/made --device cpu' continues there, with different last bits\n"
    )
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def test_on_another_device_it_goes_on_and_says_from_when(run, tmp_path):
    how = ended("resume", "runs/made", "--rounds", 5, "--device", "cpu", cwd=tmp_path)
    warning = (
        "warning: engine.device: rounds before 4 were done on pretend:0 (Pretend accelerator 0), those from "
        "4 on are done on cpu: last bits differ"
    )
    assert warning in how.err.splitlines()
    assert run.status.rounds == 5
    record = run.read_json("engine.json")
    assert (record["engine"]["device"], record["device"]) == ("cpu", "cpu")
    assert [(entry["round"], entry["name"]) for entry in record["used"]] == [
        (1, "Pretend accelerator 0"),
        (4, "cpu"),
    ]
    # From then on it is a run of the CPU's.
    how = ended("resume", "runs/made", "--rounds", 6, cwd=tmp_path)
    assert "warning" not in how.err
    assert run.status.rounds == 6
    assert len(run.read_json("engine.json")["used"]) == 2


def test_with_its_device_it_goes_on_there_as_if_it_had_not_ended(run, tmp_path):
    """The pretend device has the CPU's bits, so a run that has changed to it is also the same."""
    how = ended("resume", "runs/made", "--rounds", 5, cwd=tmp_path, pretend=True)
    assert "warning" not in how.err
    assert len(run.read_json("engine.json")["used"]) == 1
    straight = mnemos.run({**SMALL, "rounds": 5}, {"engine.device": "cpu"}, out=tmp_path / "straight")
    mine, theirs = run.metrics, straight.metrics
    assert mine[mine["round"] > 3]["value"].tolist() == theirs[theirs["round"] > 3]["value"].tolist()


def test_from_python(run, monkeypatch):
    monkeypatch.setattr("mnemos.common.devices._count", lambda _kind: 0)  # other tests may have devices here
    with pytest.raises(ConfigError, match=r"was made on pretend:0 \(Pretend accelerator 0\), which isn't"):
        mnemos.resume(run.path, 4)
    with pytest.raises(ConfigError, match="there is no device 'pretend:1'; there is cpu"):
        mnemos.resume(run.path, 4, device="pretend:1")
    assert mnemos.resume(run.path, 4, device="cpu").status.rounds == 4


def test_a_run_on_the_cpu_stays_there_where_there_is_a_device(tmp_path):
    run = mnemos.run(SMALL, out=tmp_path)
    how = ended("resume", run.path.name, "--rounds", 4, cwd=tmp_path, pretend=True)
    assert "warning" not in how.err
    how = ended("resume", run.path.name, "--rounds", 5, "--device", "pretend:1", cwd=tmp_path, pretend=True)
    assert "rounds before 5 were done on cpu, those from 5 on are done on pretend:1 (Pretend" in how.err
    assert [entry["round"] for entry in run.read_json("engine.json")["used"]] == [1, 5]


def test_a_record_of_an_earlier_version_is_one_of_the_cpu(tmp_path):
    run = mnemos.run(SMALL, out=tmp_path)
    record = run.read_json("engine.json")
    del record["engine"]["device"], record["device"], record["used"]
    run.write_json("engine.json", record)
    assert run.engine.device == "cpu"
    mnemos.resume(run.path, 4)
    assert [entry["round"] for entry in run.read_json("engine.json")["used"]] == [4]


def test_a_round_that_is_done_again_is_on_the_device_of_the_last_time(tmp_path):
    """The run changed to the CPU in round 7, and goes on there from a checkpoint after round 4."""
    (tmp_path / "experiment.yaml").touch()
    run, engine = Run.at(tmp_path), Serial(device="cpu")
    entries = [{"round": 1, "device": "cuda:0"}, {"round": 7, **CPU_ENTRY, "torch": torch.__version__}]
    run.write_json("engine.json", {"engine": engine.dump(), "device": "cpu", "used": entries})
    runner = SimpleNamespace(engine=engine, why="", plan=SimpleNamespace(arithmetic=Arithmetic()))
    assert not UsedDevices(run).note(runner, 8)
    assert run.read_json("engine.json")["used"] == entries
    assert not UsedDevices(run).note(runner, 5)
    assert [entry["round"] for entry in run.read_json("engine.json")["used"]] == [1, 5]


@pytest.mark.parametrize("used", [None, 3, [], ["x"], [{"round": "x"}], [{}]])
def test_a_damaged_list_is_written_anew(tmp_path, used):
    (tmp_path / "experiment.yaml").touch()
    run = Run.at(tmp_path)
    run.write_json("engine.json", {"engine": Serial().dump(), "used": used})
    runner = SimpleNamespace(
        engine=Serial(device="cpu"), why="", plan=SimpleNamespace(arithmetic=Arithmetic())
    )
    UsedDevices(run).change(runner, 2)
    assert UsedDevices(run).note(runner, 2)
    last = run.read_json("engine.json")["used"][-1]
    assert last == {"round": 2, **CPU_ENTRY, "torch": torch.__version__}
    assert not UsedDevices(run).note(runner, 3)


@pytest.mark.parametrize(
    ("used", "first", "device", "expected"),
    [
        (Serial(device="cpu"), Auto(), None, Serial(device="cpu")),
        (Vmap(device="xpu:0", chunk=3), Auto(), "cpu", Vmap(device="cpu", chunk=3)),
        (Threads(workers=2), Auto(), "cpu", Threads(workers=2)),
        (Threads(workers=2), Auto(exact=True), ["cpu"], Auto(exact=True, device=("cpu",))),
    ],
)
def test_which_engine_goes_on(tmp_path, used, first, device, expected):
    assert engine_for(Run(tmp_path), used, first, device) == expected


def test_an_engine_without_devices_refuses_them(tmp_path):
    with pytest.raises(ConfigError, match="threads trains on the CPU alone; engines that take a device"):
        engine_for(Run(tmp_path), Threads(), Threads(), ["cpu"])
