"""A process that is really killed between clients on their way goes on with the same ones."""

import time

from mnemos.runs.run import Run
from support.processes import mnemos, started

SETTINGS = [
    "partition={name: dirichlet, clients: 12, alpha: 0.5}",
    "model={name: cnn, width: 0.25, norm: batch}",
    "local={batch: 16, lr: 0.05}",
    "participation=0.34",
    "rounds=40",
    "method={name: scaffold, buffers: local}",
    "clock={name: fedasync, speeds: {spread: 0.7, jitter: 0.2, stragglers: {}}}",
    "engine={name: threads, workers: 2}",
]


def test_a_killed_run_ends_like_a_whole_one(tmp_path):
    whole = mnemos("run", *SETTINGS, "--out", "whole", cwd=tmp_path)
    folder = tmp_path / "killed"
    with started(["run", *SETTINGS, "--out", "killed"], tmp_path) as process:
        until = time.monotonic() + 120
        while time.monotonic() < until and process.is_alive():
            found = list(folder.glob("*/checkpoints/round-*.safetensors"))
            if any(int(path.stem.removeprefix("round-")) >= 7 for path in found):
                break
            time.sleep(0.01)
        process.kill()
        process.join(60)
    (path,) = folder.iterdir()
    reached = Run(path).saved_rounds
    assert 7 <= reached < 40
    end = mnemos("resume", path, cwd=tmp_path)
    assert (end["status"], end["accuracy"]) == ("finished", whole["accuracy"])
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (path / name).read_bytes() == (tmp_path / whole["run"] / name).read_bytes()
