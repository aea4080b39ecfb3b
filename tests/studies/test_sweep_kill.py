"""A sweep that is interrupted, killed and called again: no run twice, none lost, none different."""

import json
import signal

import pytest
import yaml

import mnemos
from mnemos.runs.run import Run, runs_in
from support.processes import sweeping, wait_for

RUNS, ROUNDS = 6, 20


@pytest.fixture
def place(tmp_path, gate):
    """Three rates, of which the last diverges, and two seeds."""
    waits = {"name": "support.gate:Gate", "at": ROUNDS // 2, "folder": str(gate)}
    study = {
        "base": {
            "partition": {"clients": 12, "alpha": 0.5},
            "model": {"hidden": [8]},
            "participation": 0.34,
            "local": {"batch": 16},
            "rounds": ROUNDS,
            "evaluate": {"every": 7, "test_last": 5},
            "engine": "serial",
        },
        "list": [{"local.lr": 0.05}, {"local.lr": 0.1, "measures": [waits]}, {"local.lr": 1e36}],
        "seeds": [0, 1],
    }
    (tmp_path / "rates.yaml").write_text(yaml.safe_dump(study))
    return tmp_path


def rounds_of(run):
    path = run.file("timing.jsonl")
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["round"] for line in lines]


def waiting(gate, number):
    """Wait until so many runs have come to the gate."""
    wait_for(lambda: len([*gate.glob("reached-*")]) >= number, f"{number} runs at the gate")


def ended(place):
    return {
        run.path: run.file("status.json").stat().st_mtime_ns for run in runs_in(place / "runs") if run.ended
    }


def test_killed_called_again_and_interrupted(place, gate):
    (gate / "open").touch()
    whole = mnemos.compare(place / "rates.yaml", out=place / "whole")
    for file in gate.iterdir():
        file.unlink()

    with sweeping(place, "--jobs", "2") as process:
        waiting(gate, 2)
        process.send(signal.SIGKILL)
    wait_for(lambda: not any(run.locked for run in runs_in(place / "runs")), "its workers to notice it")
    left_alone = ended(place)
    assert len(left_alone) == 2  # the first rate's

    # Called again, by two at once; one of them is interrupted, and the other does what that one leaves.
    for file in gate.iterdir():
        file.unlink()
    with sweeping(place, "--jobs", "1") as one, sweeping(place, "--jobs", "1") as two:
        waiting(gate, 2)
        assert "at once" in one.line(0, "err")
        one.send(signal.SIGINT)
        interrupted = one.ended()
        assert interrupted.code == 130
        assert json.loads(interrupted.out)["status"] == "interrupted"
        (gate / "open").touch()
        finished = two.ended()
        assert finished.code == 0
        assert json.loads(finished.out)["status"] == "finished"
    assert left_alone.items() <= ended(place).items()

    runs = runs_in(place / "runs")
    assert len(runs) == len(runs_in(place / "whole")) == RUNS
    for run in runs:
        theirs = Run.at(place / "whole" / run.path.name)
        assert run.file("metrics.jsonl").read_bytes() == theirs.file("metrics.jsonl").read_bytes()
        assert run.status == theirs.status
        assert rounds_of(run) == rounds_of(theirs), "no round is done twice, and none is left out"
        if run.status.status == "finished":
            assert rounds_of(run) == [*range(1, ROUNDS + 1)]
    assert [len(whole.accuracies(name)) for name in whole.runs] == [2, 2, 0]
    record = json.loads((place / "runs/rates.study.json").read_text())
    assert {name: sorted(found) for name, found in record["variants"].items()} == {
        name: sorted(run.path.name for run in found) for name, found in whole.runs.items()
    }
