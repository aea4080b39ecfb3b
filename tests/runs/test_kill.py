"""A process that is really killed, at random moments, loses nothing that was finished."""

import random
import time

from mnemos.runs.run import Run
from mnemos.runs.store import read_metrics
from support.processes import mnemos, started

SETTINGS = [
    "partition={name: dirichlet, clients: 30, alpha: 0.5}",
    "model={name: cnn, width: 0.25, norm: batch}",
    "local={epochs: 1, batch: 16, lr: 0.05, augment: [crop, flip]}",
    "participation=0.2",
    "rounds=40",
    "method={name: scaffold, loss: wsm, buffers: local}",
    "evaluate={every: 3, test_last: 5, forgetting: 7}",
    "measures=[class-accuracy, personalised]",
    "engine={name: threads, workers: 2}",
]
KILLS = 10


def kill_once(words, cwd, moment, run_of):
    """Start a command, kill it some time after it has begun its rounds; True if it was still running."""
    (cwd / "err").write_text("")
    with started(words, cwd) as process:
        while process.is_alive() and "\n" not in (cwd / "err").read_text():
            time.sleep(0.01)  # the first line says that rounds are about to begin
        time.sleep(moment)
        alive = process.is_alive()
        before = run_of().saved_rounds if run_of() else 0
        process.kill()
        process.join(60)
    return alive, before


def test_ten_kills_and_resumes_end_where_the_whole_run_does(tmp_path):
    whole = mnemos("run", *SETTINGS, "--out", "whole", cwd=tmp_path)
    moments = random.Random()  # any moment must do
    folder = tmp_path / "killed"

    def run_of():
        found = sorted(folder.glob("*/experiment.yaml")) if folder.exists() else []
        return Run(found[0].parent) if found else None

    words, reached, hits = ["run", *SETTINGS, "--out", "killed"], 0, 0
    for _ in range(KILLS):
        alive, before = kill_once(words, tmp_path, moments.uniform(0.0, 0.3), run_of)
        run = run_of()
        assert run is not None
        after = run.saved_rounds
        assert after >= before >= reached  # no finished round is lost
        read_metrics(run.file("metrics.jsonl"))  # and what was written can be read at any time
        reached, hits = after, hits + alive
        words = ["resume", str(run.path)]
    assert hits >= 5, "most kills must have hit a running process"
    end = mnemos("resume", run.path, cwd=tmp_path)
    assert end["status"] == "finished"
    assert end["accuracy"] == whole["accuracy"]
    for name in ("metrics.jsonl", "model.safetensors"):
        assert run.file(name).read_bytes() == (tmp_path / whole["run"] / name).read_bytes()
