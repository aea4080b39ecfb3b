"""Any round of a run, played again, gives the recorded model's bits."""

import pytest
import torch

from mnemos.engines.auto import AutoRunner
from mnemos.engines.vmap import Vmap
from mnemos.errors import ConfigError, DataError
from mnemos.federation.federation import Federation
from mnemos.measures.accuracy import ClassAccuracy
from mnemos.runs import execute
from mnemos.runs.directory import round_of
from mnemos.runs.kept import KeptCheckpoints
from mnemos.runs.replay import play_round, replaying, seconds_to_play
from mnemos.runs.run import Run
from support.play import each_round, small

HALF = {"partition": {"name": "dirichlet", "clients": 8, "alpha": 0.5}, "participation": 0.5, "rounds": 6}
SETTINGS = {
    "scaffold": {"method": "scaffold"},
    "fedspace and tasks": {"method": "fedspace", "stream": {"name": "tasks", "tasks": 2}},
    "asynchronous": {"clock": {"name": "asynchronous", "buffer": 2}},
    "mixed models": {"model": {"name": "mixed", "of": [{"model": "mlp"}, {"model": "logistic"}]}},
    "drop-outs and momentum": {"method": "fedavgm", "faults": [{"name": "drop-outs", "rate": 0.4}]},
    "on threads": {"engine": {"name": "threads", "workers": 2}},
}


def made(folder, keep=2, **changes):
    return execute.start(small(**{**HALF, **changes}, checkpoints={"keep": keep}), folder)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_round_gives_the_models_bits(name, tmp_path):
    """Each round by itself, from the nearest kept checkpoint or the start, against the whole run."""
    run = made(tmp_path, **SETTINGS[name])
    federation = Federation(run.load())
    recorded = run.records
    with replaying(run) as replay:
        for round, outcome in enumerate(each_round(federation), 1):
            replay.to(round - 1)
            played = replay.advance()
            assert torch.equal(replay.federation.server.model, federation.server.model)
            assert torch.equal(replay.federation.server.buffers, federation.server.buffers)
            assert played.records == outcome.records
            assert len(played.records) == sum(row["round"] == round for row in recorded) or round == 1


def test_a_run_whose_engine_chose_vmap(tmp_path, monkeypatch):
    """`auto` chooses when it gets the first cohort; that round is summed as all others are."""
    monkeypatch.setattr(AutoRunner, "_choose", lambda self, _cohort: self._take(Vmap(), "for the test"))
    # As small as in the first minutes of a user: of larger ones, sums in both orders may be the same.
    changes = {"model": {"name": "mlp", "hidden": [4]}, "local": {"steps": 1}, "rounds": 3}
    run = made(tmp_path, 1, engine="auto", **changes)
    assert run.load_engine().name == "vmap"
    with replaying(run) as replay:
        for _ in range(3):
            replay.advance()  # which compares with each round's model


def test_one_in_n_is_kept(tmp_path):
    run = made(tmp_path, keep=3)
    kept = KeptCheckpoints(run.file("checkpoints")).files()
    assert [round_of(path) for path in kept] == [3, 6]


def test_going_back_and_forth(tmp_path):
    """A replay that goes back to an earlier round ends where it did before."""
    run = made(tmp_path, method="scaffold")
    with replaying(run) as replay:
        replay.to(5)
        first = replay.federation.server
        replay.to(1)
        assert replay.federation.round == 1
        replay.to(5)
        assert torch.equal(replay.federation.server.model, first.model)
        assert torch.equal(replay.federation.server.state["scaffold.c"], first.state["scaffold.c"])


def test_other_measures(tmp_path):
    """A measure that wasn't asked for at the time adds its records, and changes nothing."""
    run = made(tmp_path, keep=0, evaluate={"every": 1})
    found = play_round(run, 4, [ClassAccuracy()])
    by_class = [record for record in found.outcome.records if record.cls is not None]
    assert {record.name for record in by_class} == {"validation_accuracy"}
    assert play_round(run, 4).model.equal(found.model)


def test_resume_goes_on_from_a_kept_checkpoint(tmp_path):
    """If the newest checkpoints are damaged, the last kept one will do."""
    run, whole = made(tmp_path / "a", method="scaffold"), made(tmp_path / "b", method="scaffold")
    for path in run.file("checkpoints").glob("round-*"):
        path.write_bytes(b"nothing")
    run.file("checkpoints/kept/round-00000006.safetensors").unlink()
    execute.resume(run.path)
    for name in ("model.safetensors", "metrics.jsonl"):
        assert run.file(name).read_bytes() == whole.file(name).read_bytes()


def test_a_model_that_differs_is_named(tmp_path):
    run = made(tmp_path)
    path = run.file("experiment.yaml")
    path.write_text(path.read_text().replace("lr: 0.1", "lr: 0.2"))
    with pytest.raises(DataError, match="round 3, played again, gives a training loss of"):
        play_round(run, 3)


@pytest.mark.parametrize("round", [0, 7])
def test_unknown_round(round, tmp_path):
    with pytest.raises(ConfigError, match=f"found round {round}; the run has rounds 1 to 6"):
        play_round(made(tmp_path), round)


def test_private_run_is_refused(tmp_path):
    private = {
        "privacy": {"name": "gaussian", "noise": 1.0},
        "method": {"name": "fedavg", "weighting": "uniform"},
    }
    run = made(tmp_path, **private, participation=1.0)
    with pytest.raises(ConfigError, match="privacy: found gaussian: a round that is played again would show"):
        play_round(run, 1)


def test_seconds_to_play(tmp_path):
    """Rounds of 2 s with a checkpoint of round 4: rounds 6 and 7 need 5, 6 and 7; round 3 needs 1 to 3."""
    run = Run(tmp_path)
    (tmp_path / "timing.jsonl").write_text(
        "".join(f'{{"round": {r}, "seconds": 2.0}}\n' for r in range(1, 9))
    )
    kept = tmp_path / "checkpoints" / "kept"
    kept.mkdir(parents=True)
    (kept / "round-00000004.safetensors").write_bytes(b"")
    assert seconds_to_play(run, 6, 7) == 6.0
    assert seconds_to_play(run, 3, 3) == 6.0
