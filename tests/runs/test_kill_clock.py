"""A process that is really killed between clients on their way goes on with the same ones."""

from mnemos.runs.run import Run
from support.processes import mnemos, started, wait_for

SETTINGS = [
    "partition={name: dirichlet, clients: 12, alpha: 0.5}",
    "model={name: cnn, width: 0.25, norm: batch}",
    "local={batch: 16, lr: 0.05}",
    "participation=0.34",
    "method={name: scaffold, buffers: local}",
    "clock={name: fedasync, speeds: {spread: 0.7, jitter: 0.2, stragglers: {}}}",
    "evaluate={test_last: 2}",
    "engine={name: threads, workers: 2}",
]


def test_a_killed_run_ends_like_a_whole_one(tmp_path):
    folder = tmp_path / "killed"

    def saved():
        found = list(folder.glob("*/checkpoints/round-*.safetensors"))
        return max((int(path.stem.removeprefix("round-")) for path in found), default=0)

    # It has more rounds than it can do before it is killed.
    with started(["run", *SETTINGS, "rounds=100000", "--out", "killed"], tmp_path) as process:
        wait_for(lambda: saved() >= 7 or not process.is_alive(), "seven rounds")
        assert process.is_alive(), (tmp_path / "err").read_text()
        process.kill()
        process.join(60)
    (path,) = folder.iterdir()
    reached = Run(path).saved_rounds
    assert reached >= 7
    rounds = reached + 10
    end = mnemos("resume", path, "--rounds", rounds, cwd=tmp_path)
    whole = mnemos("run", *SETTINGS, f"rounds={rounds}", "--out", "whole", cwd=tmp_path)
    assert (end["status"], end["accuracy"]) == ("finished", whole["accuracy"])
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (path / name).read_bytes() == (tmp_path / whole["run"] / name).read_bytes()
