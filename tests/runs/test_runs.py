import fcntl
import json

import pytest
import torch

import mnemos
from mnemos.errors import ConfigError, DataError, DivergedError
from mnemos.measures.measure import Record
from mnemos.runs.execute import Silent, resume, start
from mnemos.runs.find import find
from mnemos.runs.run import Run, create, runs_in
from mnemos.runs.store import Store, read_metrics
from support.interrupt import Stop


def contents(run):
    """What must be the same however often a run was interrupted."""
    return [run.file(name).read_bytes() for name in ("metrics.jsonl", "model.safetensors", "experiment.yaml")]


@pytest.fixture
def finished(tiny, tmp_path):
    return mnemos.run(tiny, out=tmp_path / "whole")


def test_a_run_is_repeated_byte_by_byte(tiny, finished, tmp_path):
    assert contents(mnemos.run(tiny, out=tmp_path / "again")) == contents(finished)


@pytest.mark.parametrize("after", [1, 2, 3])
def test_an_interrupted_run_ends_where_the_whole_one_does(tiny, finished, tmp_path, after):
    observer = Stop(after)
    with pytest.raises(KeyboardInterrupt):
        mnemos.run(tiny, out=tmp_path / "part", observer=observer)
    assert observer.run.status.status == "interrupted"
    assert observer.run.status.rounds == after
    run = resume(observer.run.path)
    assert contents(run) == contents(finished)
    assert run.status == finished.status


def test_a_finished_run_goes_on_like_a_longer_one(tiny, finished, tmp_path):
    """The last rounds of the shorter run were tested too; apart from that nothing differs."""
    longer = mnemos.run({**tiny, "rounds": 7}, out=tmp_path / "longer")
    run = resume(finished.path, rounds=7)
    assert run.file("model.safetensors").read_bytes() == longer.file("model.safetensors").read_bytes()
    assert run.status == longer.status
    merged = longer.metrics.merge(run.metrics, how="left", indicator=True)
    assert (merged["_merge"] == "both").all()


def test_fewer_rounds_than_done_are_refused(finished):
    before = contents(finished)
    with pytest.raises(ConfigError, match="has 4 rounds already"):
        resume(finished.path, rounds=2)
    assert contents(finished) == before


def test_a_run_knows_its_experiment_engine_and_model(tiny, finished):
    assert finished.experiment == mnemos.Experiment.parse(tiny)
    assert type(finished.engine).name == "serial"
    arithmetic = json.loads(finished.file("engine.json").read_text())["arithmetic"]
    assert arithmetic == {
        "channels_last": True,
        "intra_op": 1,
        "compile": False,
        "vmap": False,
        "device": "cpu",
        "deterministic": False,
        "precision": "float32",
    }
    assert isinstance(finished.model(), torch.nn.Module)
    assert json.loads(finished.file("environment.json").read_text())["torch"] == torch.__version__


def test_resume_stays_with_the_engine_the_run_began_with(tiny, tmp_path):
    observer = Stop(1)
    with pytest.raises(KeyboardInterrupt):
        mnemos.run({**tiny, "engine": "vmap"}, out=tmp_path, observer=observer)
    path = observer.run.file("experiment.yaml")
    path.write_text(path.read_text().replace("name: vmap", "name: auto").replace("intra_op: 1, chunk: 0", ""))
    text = path.read_text()
    path.write_text(text[: text.index("engine:")] + "engine: {name: auto}\nseed: 0\n")
    assert type(resume(observer.run.path).engine).name == "vmap"


def test_only_one_process_works_on_a_run(finished):
    with finished.lock():
        assert finished.locked
        with pytest.raises(ConfigError, match="another process"):
            resume(finished.path, rounds=5)
    assert not finished.locked


def test_looking_at_a_lock_neither_takes_nor_makes_it(finished):
    with finished.file(".lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # another one who looks
        assert not finished.locked
    finished.file(".lock").unlink()
    assert not finished.locked
    assert not finished.file(".lock").exists()


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(tiny, finished, tmp_path):
    observer = Stop(3)
    with pytest.raises(KeyboardInterrupt):
        mnemos.run(tiny, out=tmp_path / "part", observer=observer)
    newest = max(observer.run.file("checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-7])
    assert contents(resume(observer.run.path)) == contents(finished)


def test_metrics_cut_short_fall_back_to_an_older_checkpoint(tiny, finished, tmp_path):
    observer = Stop(3)
    with pytest.raises(KeyboardInterrupt):
        mnemos.run(tiny, out=tmp_path / "part", observer=observer)
    metrics = observer.run.file("metrics.jsonl")
    metrics.write_bytes(metrics.read_bytes()[:-3])
    assert contents(resume(observer.run.path)) == contents(finished)


def test_divergence_is_recorded(tiny, tmp_path):
    observer = Silent()
    with pytest.raises(DivergedError, match="not finite"):
        mnemos.run({**tiny, "local": {"lr": 1e30}}, out=tmp_path, observer=observer)
    assert observer.run.status.status == "diverged"
    assert "not finite" in observer.run.status.message


def test_an_experiment_that_cannot_be_run_leaves_no_directory(tiny, tmp_path):
    with pytest.raises(ConfigError):
        mnemos.run({**tiny, "partition": {"clients": 100_000}}, out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_runs_of_one_experiment_get_directories_of_their_own(tiny, tmp_path):
    experiment = mnemos.Experiment.parse(tiny)
    first, second = create(experiment, tmp_path), create(experiment, tmp_path)
    assert first.path != second.path
    assert [run.path for run in runs_in(tmp_path)] == sorted([first.path, second.path])
    assert find(experiment, tmp_path) == first
    assert find(experiment.override({"seed": 5}), tmp_path) is None
    assert first.status.status == "interrupted"


def test_of_several_runs_of_one_experiment_one_that_ended_is_found(tiny, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        mnemos.run(tiny, out=tmp_path, observer=Stop(1))
    ended = mnemos.run(tiny, out=tmp_path)
    assert len(runs_in(tmp_path)) == 2
    assert find(ended.experiment, tmp_path) == ended


def test_metrics_can_be_read_while_they_are_written(tmp_path):
    path = tmp_path / "metrics.jsonl"
    store = Store(path)
    store.append([Record(1, "a", 0.5), Record(1, "b", float("nan"), client=3, cls=2)])
    with path.open("ab") as file:
        file.write(b'{"round": 2, "na')
    frame = read_metrics(path)
    assert frame["round"].tolist() == [1, 1]
    assert frame["value"].isna().tolist() == [False, True]
    assert frame.loc[1, "client"] == 3
    assert frame.loc[1, "class"] == 2
    store.rewind(0)
    assert len(read_metrics(path)) == 0
    store.close()


@pytest.mark.parametrize(
    "line", ["nonsense", "[1]", '{"round": "a", "name": "b", "value": 1}', '{"round": 1}']
)
def test_a_damaged_line_is_named(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"round": 1, "name": "a", "value": 1.0}\n' + line + "\n")
    with pytest.raises(DataError, match="line 2 is damaged"):
        read_metrics(path)


def test_a_frozen_layer_is_neither_trained_nor_lost(tiny, tmp_path):
    run = start(mnemos.Experiment.parse({**tiny, "model": "test_runs:Frozen"}), tmp_path)
    trained, fresh = run.model(), Frozen((1, 8, 8), 10)
    assert bool((trained.body.weight == 0.25).all())
    assert not torch.equal(trained.head.weight, fresh.head.weight)


class Frozen(torch.nn.Module):
    """A linear model on top of a layer that isn't trained."""

    def __init__(self, shape, classes):
        super().__init__()
        self.body = torch.nn.Linear(64, 4)
        torch.nn.init.constant_(self.body.weight, 0.25)
        self.body.requires_grad_(False)
        self.head = torch.nn.Linear(4, classes)

    def forward(self, x):
        return self.head(self.body(x.flatten(1)))


def test_comparing_takes_up_what_was_interrupted(tiny, tmp_path):
    comparison = {"base": tiny, "variants": {"a": {}, "b": {"local.lr": 0.2}}, "seeds": [0, 1]}
    observer = Stop(2)
    with pytest.raises(KeyboardInterrupt):
        mnemos.run(tiny, out=tmp_path, observer=observer)
    compared = mnemos.compare(comparison, out=tmp_path)
    assert compared.runs["a"][0].path == observer.run.path
    assert len(compared.accuracies("b")) == 2
    before = {run.path: run.file("metrics.jsonl").stat().st_mtime_ns for run in runs_in(tmp_path)}
    assert len(before) == 4
    mnemos.compare(comparison, out=tmp_path)
    assert before == {run.path: run.file("metrics.jsonl").stat().st_mtime_ns for run in runs_in(tmp_path)}


def test_a_variant_that_diverges_does_not_stop_the_others(tiny, tmp_path):
    comparison = {"base": tiny, "variants": {"bad": {"local.lr": 1e30}, "good": {}}, "seeds": [0]}
    compared = mnemos.compare(comparison, out=tmp_path)
    assert compared.diverged("bad") == 1
    assert len(compared.accuracies("good")) == 1


def test_a_run_elsewhere_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="there is no run here"):
        Run.at(tmp_path)


def test_the_folder_of_a_run_is_named_after_the_users_file(tiny, tmp_path):
    data = {"name": "npz", "path": "own/lung scans.npz"}
    run = create(mnemos.Experiment.parse({**tiny, "data": data}), tmp_path)
    assert run.path.name.startswith("lung_scans-fedavg-ce-s0-")
