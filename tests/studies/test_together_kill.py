"""Runs that share processes, killed in the middle: called again, none is lost, none is done twice."""

import json
import os
import signal

import pytest
import yaml

from mnemos.experiment.experiment import Experiment
from mnemos.runs.execute import start
from mnemos.runs.run import Run, runs_in
from support.processes import sweeping, wait_for

ROUNDS = 12


@pytest.fixture
def study(tmp_path, gate):
    """Two rates and two seeds."""
    given = {
        "base": {
            "partition": {"clients": 12, "alpha": 0.5},
            "model": {"hidden": [8]},
            "participation": 0.34,
            "local": {"batch": 16},
            "rounds": ROUNDS,
            "evaluate": {"every": 5, "test_last": 2},
            "measures": [{"name": "support.gate:Gate", "at": ROUNDS // 2, "folder": str(gate)}],
            "engine": "vmap",
        },
        "grid": {"local.lr": [0.05, 0.1]},
        "seeds": [0, 1],
    }
    (tmp_path / "rates.yaml").write_text(yaml.safe_dump(given))
    return given


def test_killed_and_called_again(study, gate, tmp_path):
    with sweeping(tmp_path) as process:
        wait_for(lambda: len([*gate.glob("reached-*")]) == 2, "both processes at the gate")
        assert "4 at once" in process.line(0, "err")
        assert "they share 2 processes" in process.line(1, "err")
        process.send(signal.SIGKILL)
        for path in gate.glob("reached-*"):
            os.kill(int(path.name.partition("-")[2]), signal.SIGKILL)
    runs = runs_in(tmp_path / "runs")
    wait_for(lambda: not any(run.locked for run in runs), "their locks to be free")
    assert sorted(run.saved_rounds for run in runs) == [ROUNDS // 2 - 1] * 4, "in the middle"

    (gate / "open").touch()
    with sweeping(tmp_path, "--jobs", "auto") as process:
        ended = process.ended()
    assert (ended.code, json.loads(ended.out)["status"]) == (0, "finished")

    runs = runs_in(tmp_path / "runs")
    assert len(runs) == 4
    for run in runs:
        assert run.status.status == "finished"
        rounds = [json.loads(line)["round"] for line in run.file("timing.jsonl").read_text().splitlines()]
        assert rounds == [*range(1, ROUNDS + 1)], "no round is done twice, and none is left out"
    base = Experiment.parse(study["base"])
    for lr in study["grid"]["local.lr"]:
        for seed in study["seeds"]:
            alone = start(base.override({"local.lr": lr, "seed": seed}), tmp_path / "alone")
            ours = Run.at(tmp_path / "runs" / alone.path.name)
            for name in ("metrics.jsonl", "model.safetensors"):
                assert ours.file(name).read_bytes() == alone.file(name).read_bytes()
