import shutil
import sys

import pytest
from stories import HOLE, REPEATED, expected, interrupted

import mnemos
from mnemos.errors import ConfigError
from mnemos.runs.run import Run
from mnemos.track.sink import parameters


@pytest.fixture
def out(empty_store, tmp_path):
    """A folder for runs that has a store already."""
    folder = tmp_path / "runs"
    folder.mkdir()
    shutil.copy(empty_store, folder / "mlflow.db")
    return folder


def store(out):
    import mlflow  # which takes a second, and isn't to be imported before the settings are ours

    return mlflow.MlflowClient(tracking_uri=f"sqlite:///{out / 'mlflow.db'}")


def entries(out, experiment="mnemos"):
    client = store(out)
    return client.search_runs([client.get_experiment_by_name(experiment).experiment_id])


def history(out, entry):
    """{name: [(round, value)]} of a run in MLflow."""
    client = store(out)
    return {
        name: sorted(
            (metric.step, metric.value) for metric in client.get_metric_history(entry.info.run_id, name)
        )
        for name in entry.data.metrics
    }


def whole(run):
    points = {**expected(run), "final_accuracy": {run.status.rounds: run.accuracy}}
    return {name: sorted(rounds.items()) for name, rounds in points.items()}


def test_metrics_parameters_and_nothing_about_the_machine(tiny, out):
    run = mnemos.run(tiny, out=out, track=["mlflow"])
    (entry,) = entries(out)
    assert history(out, entry) == whole(run)
    assert entry.data.params == {name: str(value) for name, value in parameters(run.experiment).items()}
    assert entry.info.run_name == run.path.name
    assert entry.info.status == "FINISHED"
    assert entry.data.tags == {"mlflow.runName": run.path.name, "status": "finished"}
    assert entry.info.user_id in (None, "", "unknown")
    assert store(out).list_artifacts(entry.info.run_id) == []


@pytest.mark.parametrize("story", [HOLE, REPEATED])
def test_resuming_goes_on_with_the_same_run_and_each_round_once(tiny, out, story):
    run = interrupted(tiny, out, ["mlflow"], **story)
    (before,) = entries(out)
    assert before.info.status == "KILLED"
    assert (run.saved_rounds > len(history(out, before)["train_loss"])) == (story is HOLE)
    run = mnemos.resume(run.path, track=["mlflow"])
    (after,) = entries(out)
    assert after.info.run_id == before.info.run_id
    assert after.info.status == "FINISHED"
    assert history(out, after) == whole(run)
    mnemos.resume(run.path, track=["mlflow"])  # nothing to do, and nothing said twice
    (again,) = entries(out)
    assert history(out, again) == whole(run)


def test_more_rounds_become_a_tag(tiny, out):
    run = mnemos.run(tiny, out=out, track=["mlflow"])
    mnemos.resume(run.path, rounds=5, track=["mlflow"])
    (entry,) = entries(out)
    assert entry.data.params["rounds"] == "4"
    assert entry.data.tags["rounds"] == "5"
    assert [number for number, _ in history(out, entry)["train_loss"]] == [1, 2, 3, 4, 5]


def test_another_store_gets_the_whole_run(tiny, out, tmp_path, empty_store):
    (tmp_path / "other").mkdir()
    shutil.copy(empty_store, tmp_path / "other" / "mlflow.db")
    run = mnemos.run(tiny, out=out, track=["mlflow"])
    uri = f"sqlite:///{tmp_path / 'other' / 'mlflow.db'}"
    mnemos.resume(run.path, track=[f"mlflow:tracking_uri={uri},experiment=mine"])
    (entry,) = entries(tmp_path / "other", "mine")
    assert history(tmp_path / "other", entry) == whole(run)


def test_long_histories_go_in_several_requests(tiny, out, monkeypatch):
    monkeypatch.setattr("mnemos.track.mlflow._METRICS_AT_ONCE", 7)
    monkeypatch.setattr("mnemos.track.mlflow._PARAMETERS_AT_ONCE", 5)
    run = mnemos.run(tiny, out=out)
    run = mnemos.resume(run.path, track=["mlflow"])
    (entry,) = entries(out)
    assert history(out, entry) == whole(run)
    assert len(entry.data.params) == len(parameters(run.experiment))


def test_the_environment_says_where(tiny, out, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{out / 'mlflow.db'}")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "theirs")
    mnemos.run(tiny, out=tmp_path / "elsewhere", track=["mlflow"])
    assert len(entries(out, "theirs")) == 1
    assert not (tmp_path / "elsewhere" / "mlflow.db").exists()


def test_a_damaged_id_switches_the_sink_off(tiny, out):
    run = mnemos.run(tiny, out=out, track=["mlflow"])
    run.file("tracking.json").write_text("[")
    with pytest.warns(UserWarning, match=r"tracking by mlflow is off .*tracking.json: it is damaged"):
        mnemos.resume(run.path, rounds=5, track=["mlflow"])
    assert Run(run.path).status.rounds == 5


@pytest.mark.parametrize(("module", "package"), [("mlflow", "mlflow-skinny"), ("sqlalchemy", "sqlalchemy")])
def test_without_a_package(tiny, tmp_path, monkeypatch, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"track.mlflow: it needs the package {package} .*extra 'track'"):
        mnemos.run(tiny, out=tmp_path / "runs", track=["mlflow"])
    assert not (tmp_path / "runs").exists()
