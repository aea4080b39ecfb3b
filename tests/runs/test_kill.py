"""A process that is really killed, at random moments, loses nothing that was finished."""

import random
import time

from mnemos.runs.run import Run
from mnemos.runs.store import read_metrics
from support.processes import mnemos, started, wait_for

SETTINGS = [
    "partition={name: dirichlet, clients: 30, alpha: 0.5}",
    "model={name: cnn, width: 0.25, norm: batch}",
    "local={epochs: 1, batch: 16, lr: 0.05, augment: [crop, flip]}",
    "participation=0.2",
    "method={name: scaffold, loss: wsm, buffers: local}",
    "evaluate={every: 3, test_last: 2, forgetting: 7}",
    "measures=[class-accuracy, personalised]",
    "engine={name: threads, workers: 2}",
]
KILLS = 10
ENDLESS = "rounds=100000"
"""More than it can do before it is killed."""


def kill_once(words, cwd, moment, run_of):
    """Start a command, and kill it some time after it has begun its rounds; how many were saved then."""
    (cwd / "err").write_text("")
    with started(words, cwd) as process:
        wait_for(lambda: "\n" in (cwd / "err").read_text() or not process.is_alive(), "its rounds to begin")
        time.sleep(moment)
        assert process.is_alive(), (cwd / "err").read_text()
        before = run_of().saved_rounds if run_of() else 0
        process.kill()
        process.join(60)
    return before


def test_ten_kills_and_resumes_end_where_the_whole_run_does(tmp_path):
    moments = random.Random()  # any moment must do
    folder = tmp_path / "killed"

    def run_of():
        found = sorted(folder.glob("*/experiment.yaml")) if folder.exists() else []
        return Run(found[0].parent) if found else None

    words, reached = ["run", *SETTINGS, ENDLESS, "--out", "killed"], 0
    for _ in range(KILLS):
        before = kill_once(words, tmp_path, moments.uniform(0.0, 0.2), run_of)
        run = run_of()
        assert run is not None
        after = run.saved_rounds
        assert after >= before >= reached  # no finished round is lost
        read_metrics(run.file("metrics.jsonl"))  # and what was written can be read at any time
        reached, words = after, ["resume", str(run.path)]
    rounds = reached + 3
    end = mnemos("resume", run.path, "--rounds", rounds, cwd=tmp_path)
    assert end["status"] == "finished"
    whole = mnemos("run", *SETTINGS, f"rounds={rounds}", "--out", "whole", cwd=tmp_path)
    assert end["accuracy"] == whole["accuracy"]
    for name in ("metrics.jsonl", "model.safetensors"):
        assert run.file(name).read_bytes() == (tmp_path / whole["run"] / name).read_bytes()
