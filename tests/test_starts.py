"""What a model starts from: random weights, a file, or an encoder trained on fractals once for all runs."""

import json
import shutil
from contextlib import closing

import pytest
import torch

import mnemos
from mnemos.errors import ConfigError, DataError
from mnemos.experiment.experiment import Experiment, load_experiment
from mnemos.federation.federation import Federation
from mnemos.models.encoder import Encoder, load_encoder, save_encoder
from mnemos.pretrain import cache
from mnemos.pretrain.train import train
from mnemos.runs.execute import Silent
from mnemos.runs.run import Run
from support.interrupt import Stop

FRACTALS = {"name": "fractals", "classes": 3, "images": 20, "batch": 16}


class Diary(Silent):
    """Writes down what it hears."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def preparing(self, done, total, note):
        self.heard.append((done, total))

    def round(self, outcome):
        self.heard.append(outcome.round)


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MNEMOS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "encoders"


@pytest.fixture
def base(tiny):
    """A quick experiment whose model has batch-norm."""
    return {**tiny, "rounds": 2, "model": {"name": "mlp", "hidden": [8], "norm": "batch"}}


@pytest.fixture
def encoder(base, tmp_path):
    """A file with an encoder of that model."""
    with closing(Federation(Experiment.parse(base))) as federation:
        state = federation.layout.state_dict(federation.server.model, federation.server.buffers)
    tensors = {name: tensor + 1 for name, tensor in state.items() if not name.startswith("head.")}
    path = tmp_path / "encoder.safetensors"
    save_encoder(path, Encoder(tensors, {"model": {"name": "mlp"}}))
    return path


def first(experiment):
    """The model before the first round, tensor by tensor."""
    with closing(Federation(experiment)) as federation:
        federation.load_start()
        return federation.layout.state_dict(federation.server.model, federation.server.buffers)


def test_random_is_the_default_and_changes_nothing(base):
    experiment = Experiment.parse(base)
    assert experiment.start.dump() == {"name": "random"}
    with closing(Federation(experiment)) as federation:
        before = federation.server.model.clone()
        assert federation.load_start() is None
        assert torch.equal(federation.server.model, before)


def test_the_encoder_comes_from_the_file_and_the_head_from_the_seed(base, encoder):
    given = load_encoder(encoder).tensors
    started = {
        seed: first(load_experiment({**base, "seed": seed, "start": {"name": "file", "path": str(encoder)}}))
        for seed in (0, 1)
    }
    for seed, state in started.items():
        random = first(load_experiment({**base, "seed": seed}))
        for name, tensor in state.items():
            assert torch.equal(tensor, random[name] if name.startswith("head.") else given[name]), name
    assert not torch.equal(started[0]["head.weight"], started[1]["head.weight"])
    assert "body.2.running_mean" in given


def test_a_round_never_runs_without_its_start(base, encoder):
    """Also for those who call `advance` alone; and a second call of `begin` takes nothing back."""
    experiment = load_experiment({**base, "start": {"name": "file", "path": str(encoder)}})
    after = []
    for calls in (0, 2):
        with closing(Federation(experiment)) as federation, federation.open() as runner:
            for _ in range(calls):
                federation.load_start()
            federation.advance(runner)
            federation.load_start()
            after.append(federation.server.model)
    assert torch.equal(*after)


def test_a_run_needs_neither_file_nor_cache_afterwards(base, encoder, tmp_path):
    """Interrupted, its file gone, and resumed: as if never stopped. The record says which encoder it was."""
    experiment = {**base, "rounds": 4, "start": {"name": "file", "path": str(encoder)}}
    whole = mnemos.run(experiment, out=tmp_path / "whole")
    stop = Stop(after=2)
    with pytest.raises(KeyboardInterrupt):
        mnemos.run(experiment, out=tmp_path / "stopped", observer=stop)
    digest = load_encoder(encoder).digest
    encoder.unlink()
    run = mnemos.resume(stop.run.path)
    assert run.file("metrics.jsonl").read_bytes() == whole.file("metrics.jsonl").read_bytes()
    assert run.file("model.safetensors").read_bytes() == whole.file("model.safetensors").read_bytes()
    recorded = json.loads(run.file("start.json").read_text())
    assert recorded["encoder"] == digest
    assert recorded["start"] == experiment["start"]
    assert recorded["about"] == {"model": {"name": "mlp"}}
    run.model()
    with pytest.raises(DataError, match="doesn't exist"):  # a new run does need it
        mnemos.run(experiment, out=tmp_path / "new")
    assert not (tmp_path / "new").exists()
    mnemos.compare({"base": experiment, "variants": {"it": {}}, "seeds": [0]}, out=tmp_path / "stopped")


def test_a_runs_own_model_is_a_start(base, tmp_path):
    run = mnemos.run(base, out=tmp_path)
    path = run.file("model.safetensors")
    state = first(load_experiment({**base, "start": {"name": "file", "path": str(path)}}))
    trained = load_encoder(path).tensors
    same = {name for name in state if torch.equal(state[name], trained[name])}
    assert same == {name for name in state if not name.startswith("head.")}


def test_fractals_are_trained_before_the_first_round_and_once(base, own_cache, tmp_path):
    """Shown as it goes on; a second seed and a second variant find it; the rest of a study is as ever."""
    diary = Diary()
    run = mnemos.run({**base, "start": FRACTALS}, out=tmp_path / "runs", observer=diary)
    assert diary.heard == [(1, 3), (2, 3), (3, 3), 1, 2]
    (path,) = own_cache.glob("*.safetensors")
    assert json.loads(run.file("start.json").read_text())["encoder"] == load_encoder(path).digest
    again = Diary()
    mnemos.run({**base, "seed": 1, "local": {"lr": 0.01}, "start": FRACTALS}, out=tmp_path, observer=again)
    assert again.heard == [1, 2]
    study = {"base": base, "variants": {"random": {}, "fractals": {"start": FRACTALS}}, "seeds": [0, 1]}
    results = mnemos.compare(study, out=tmp_path / "study")
    assert {name: len(runs) for name, runs in results.runs.items()} == {"random": 2, "fractals": 2}
    assert len(list(own_cache.glob("*.safetensors"))) == 1
    shutil.rmtree(own_cache)
    mnemos.resume(run.path, rounds=3)
    assert not own_cache.exists()  # nothing was trained again


@pytest.mark.usefixtures("forked_workers")
def test_a_sweeps_processes_train_it_once(base, own_cache, tmp_path, monkeypatch):
    study = {"base": {**base, "start": FRACTALS}, "grid": {"local.lr": [0.1, 0.2]}, "seeds": [0]}
    results = mnemos.sweep(study, out=tmp_path / "sweep", jobs=2)
    assert [result.status for result in results] == ["finished", "finished"]
    records = [json.loads(path.read_text()) for path in (tmp_path / "sweep").glob("*/start.json")]
    assert len({record["encoder"] for record in records}) == 1
    assert len(list(own_cache.glob("*.safetensors"))) == 1


def test_an_interrupted_pre_training_is_done_when_the_run_goes_on(base, own_cache, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cache, "train", interrupted)
    observer = Silent()
    with pytest.raises(KeyboardInterrupt):
        mnemos.run({**base, "start": FRACTALS}, out=tmp_path, observer=observer)
    assert observer.run.status.status == "interrupted"
    assert not list(own_cache.glob("*.safetensors"))
    monkeypatch.setattr(cache, "train", train)
    run = mnemos.resume(observer.run.path)
    assert (run.status.status, run.file("start.json").is_file()) == ("finished", True)


def test_what_can_not_be_started_from(base, encoder, tmp_path):
    """One sentence, before there is a directory."""
    cases = {
        "start: .*'body.1.weight' is .8, 64., and the model's is .9, 64.": {
            "model": {"name": "mlp", "hidden": [9], "norm": "batch"},
            "start": {"name": "file", "path": str(encoder)},
        },
        "start: an encoder is one model's": {
            "model": {"name": "mixed", "of": [{"model": "mlp"}, {"model": "logistic"}]},
            "start": {"name": "file", "path": str(encoder)},
        },
        "start: the model is nothing but a head": {"model": "logistic", "start": FRACTALS},
        "start.path": {"start": {"name": "file"}},
        "start.classes: found 1": {"start": {**FRACTALS, "classes": 1}},
        "start.batch: found 1, but batch-norm": {"start": {**FRACTALS, "batch": 1}},
        "there is no start 'fractal'; did you mean 'fractals'": {"start": "fractal"},
    }
    for sentence, changes in cases.items():
        with pytest.raises(ConfigError, match=sentence):
            mnemos.run({**base, **changes}, out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
    study = {
        "base": base,
        "variants": {"good": {}, "bad": {"start": {"name": "file", "path": str(tmp_path / "none")}}},
        "seeds": [0],
    }
    with pytest.raises(DataError, match="none doesn't exist"):
        mnemos.compare(study, out=tmp_path / "runs")
    assert not [path for path in tmp_path.glob("runs/*") if Run(path).file("experiment.yaml").exists()]
