"""A process that is really killed between clients on their way goes on with the same ones."""

import json
import signal
import subprocess
import sys
import time

from mnemos.runs.run import Run

COMMAND = [sys.executable, "-m", "mnemos"]
SETTINGS = [
    "partition={name: dirichlet, clients: 12, alpha: 0.5}",
    "model={name: cnn, width: 0.25, norm: batch}",
    "local={batch: 16, lr: 0.05}",
    "participation=0.34",
    "rounds=60",
    "method={name: scaffold, buffers: local}",
    "clock={name: fedasync, speeds: {spread: 0.7, jitter: 0.2, stragglers: {}}}",
    "engine={name: threads, workers: 2}",
]


def mnemos(*words, cwd):
    done = subprocess.run(
        [*COMMAND, *words, "--json"], cwd=cwd, capture_output=True, text=True, timeout=240, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_a_killed_run_ends_like_a_whole_one(tmp_path):
    whole = mnemos("run", *SETTINGS, "--out", "whole", cwd=tmp_path)
    folder = tmp_path / "killed"
    process = subprocess.Popen(
        [*COMMAND, "run", *SETTINGS, "--out", "killed"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 120
        while time.monotonic() < until and process.poll() is None:
            found = list(folder.glob("*/checkpoints/round-*.safetensors"))
            if any(int(path.stem.removeprefix("round-")) >= 7 for path in found):
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait(60)
    (path,) = folder.iterdir()
    reached = Run(path).saved_rounds
    assert 7 <= reached < 60
    end = mnemos("resume", str(path), cwd=tmp_path)
    assert (end["status"], end["accuracy"]) == ("finished", whole["accuracy"])
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (path / name).read_bytes() == (tmp_path / whole["run"] / name).read_bytes()
