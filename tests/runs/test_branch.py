"""Branches: they go on from a round of another run, end like it if nothing is changed, and can be killed."""

import json

import pytest

from mnemos.errors import ConfigError
from mnemos.runs import execute
from mnemos.runs.branch import Branching, branch
from mnemos.runs.find import find
from mnemos.runs.replay import play_round
from mnemos.runs.run import Run
from support.interrupt import Stop
from support.play import small

BASE = {
    "partition": {"name": "dirichlet", "clients": 8, "alpha": 0.5},
    "participation": 0.5,
    "rounds": 6,
    "evaluate": {"every": 1},
}
SETTINGS = {
    "scaffold": {"method": "scaffold", "checkpoints": {"keep": 2}},
    "fedspace and tasks": {"method": "fedspace", "stream": {"name": "tasks", "tasks": 2}},
    "asynchronous": {"clock": {"name": "asynchronous", "buffer": 2}, "checkpoints": {"keep": 4}},
    "cosine": {"local": {"steps": 2, "lr": 0.1, "schedule": "cosine"}},
}


def made(folder, **changes):
    return execute.start(small(**{**BASE, **changes}), folder)


class Never(execute.Silent):
    """Interrupts a run before its first round."""

    def started(self, run, experiment, round):
        raise KeyboardInterrupt


def same(one, other, *names):
    return all(one.file(name).read_bytes() == other.file(name).read_bytes() for name in names)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_branch_without_changes_ends_like_its_parent(name, tmp_path):
    parent = made(tmp_path, **SETTINGS[name])
    run = branch(parent, Branching(3), tmp_path)
    assert same(run, parent, "model.safetensors", "metrics.jsonl", "experiment.yaml")
    assert run.accuracy == parent.accuracy
    assert run.path.name == f"{parent.path.name}-from3"
    assert run.parent == {
        "run": str(parent.path), "round": 3, "changes": {}, "without": [], "reweight": {}
    }  # fmt: skip


def test_a_killed_branch_resumes(tmp_path):
    """Interrupted in round 5, as by Ctrl-C: it goes on where it was, and ends like its parent."""
    parent = made(tmp_path, method="scaffold")
    with pytest.raises(KeyboardInterrupt):
        branch(parent, Branching(3), tmp_path, Stop(5))
    run = Run(tmp_path / f"{parent.path.name}-from3")
    assert (run.status.status, run.status.rounds) == ("interrupted", 5)
    execute.resume(run.path)
    assert same(run, parent, "model.safetensors", "metrics.jsonl")


def test_a_branch_that_was_killed_before_its_first_round(tmp_path):
    """Only what `branch` has prepared is there: the rounds are done from the parent's state."""
    parent = made(tmp_path, method="scaffold")
    with pytest.raises(KeyboardInterrupt):
        branch(parent, Branching(3), tmp_path, Never())
    run = Run(tmp_path / f"{parent.path.name}-from3")
    assert run.status.rounds == 3
    execute.resume(run.path)
    assert same(run, parent, "model.safetensors", "metrics.jsonl")


def test_without_a_client(tmp_path):
    """Clients 0 and 3 never train in the branch, and rounds 1 to 3 are the parent's."""
    parent = made(tmp_path, participation=1.0)
    run = branch(parent, Branching(3, without=(3, 0), rounds=2), tmp_path)
    losses = [row for row in run.records if row["name"] == "train_loss" and "client" in row]
    trained = {(row["round"], row["client"]) for row in losses}
    everyone = {(round, client) for round in range(1, 6) for client in range(8)}
    assert trained == everyone - {(round, client) for round in (4, 5) for client in (0, 3)}
    assert run.status.rounds == 5
    assert not same(run, parent, "model.safetensors")
    again = play_round(run, 5)
    assert again.outcome.round == 5
    with pytest.raises(ConfigError, match="found round 3; the run has rounds 4 to 5, and those before"):
        play_round(run, 3)


def test_without_a_client_that_was_away_before(tmp_path):
    """Client 3 is away up to round 3 in the parent, and in all rounds of the branch."""
    parent = made(tmp_path, participation=1.0, faults=[{"name": "absent", "who": [3], "last": 3}])
    run = branch(parent, Branching(3, without=(3,)), tmp_path)
    trained = {(row["round"], row.get("client")) for row in run.records if row["name"] == "train_loss"}
    assert not {(round, 3) for round in range(1, 7)} & trained
    assert (4, 2) in trained


def test_changes(tmp_path):
    """Another loss, and another method: what clients remember of the old one isn't used."""
    parent = made(tmp_path, method="scaffold")
    run = branch(parent, Branching(3, {"method.loss": "wsm"}, reweight={1: 0.1}), tmp_path)
    assert type(run.experiment.method.loss).name == "wsm"
    assert type(run.experiment.method.weighting).name == "scaled"
    assert find(run.experiment, tmp_path) is None  # a branch isn't a run of its experiment

    class Told(execute.Silent):
        def warned(self, sentence):
            told.append(sentence)

    told = []
    other = branch(parent, Branching(3, {"method": "feddyn"}), tmp_path, Told())
    assert other.status.status == "finished"
    assert any("they begin anew" in sentence for sentence in told)


@pytest.mark.parametrize(
    ("at", "sentence"),
    [
        (Branching(9), "found round 9; the run has rounds 0 to 6"),
        (Branching(6), "rounds: found 6, and the branch begins after round 6"),
        (Branching(2, {"seed": 1}), "seed: a branch keeps its parent's"),
        (Branching(2, {"partition.alpha": 1.0}), "partition: a branch keeps its parent's"),
        (Branching(2, without=(8,)), "faults.0.who: found client 8; the clients are 0 to 7"),
        (Branching(2, {"method.los": "wsm"}), "method.los: unknown field"),
    ],
)
def test_bad_input(at, sentence, tmp_path):
    """One sentence, and no directory is left."""
    parent = made(tmp_path)
    with pytest.raises(ConfigError) as error:
        branch(parent, at, tmp_path)
    assert sentence in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == [parent.path.name]


def test_paced_stream(tmp_path):
    parent = made(tmp_path, stream={"name": "tasks", "tasks": 2})
    with pytest.raises(ConfigError, match="the stream tasks is laid out over the run's 6"):
        branch(parent, Branching(2, rounds=2), tmp_path)


def test_parent_json_names_the_changes(tmp_path):
    run = branch(made(tmp_path), Branching(5, {"local.lr": 0.2}, (1,), {2: 0.5}), tmp_path)
    known = json.loads(run.file("parent.json").read_text())
    assert (known["changes"], known["without"], known["reweight"]) == ({"local.lr": 0.2}, [1], {"2": 0.5})
