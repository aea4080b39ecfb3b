import sys

import pytest
from stories import HOLE, REPEATED, expected, interrupted
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

import mnemos
from mnemos.errors import ConfigError
from mnemos.track.sink import parameters


def load(folder):
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return found


def scalars(folder):
    """{name: [(round, value)]} as TensorBoard would show it."""
    found = load(folder)
    return {
        name: [(event.step, event.value) for event in found.Scalars(name)] for name in found.Tags()["scalars"]
    }


def whole(run):
    points = {**expected(run), "final_accuracy": {run.status.rounds: run.accuracy}}
    # TensorBoard keeps single precision.
    return {
        name: [(number, pytest.approx(value, rel=1e-6)) for number, value in sorted(rounds.items())]
        for name, rounds in points.items()
    }


def test_scalars_and_the_experiment(tiny, tmp_path):
    run = mnemos.run(tiny, out=tmp_path, track=["tensorboard"])
    folder = run.file("tensorboard")
    assert scalars(folder) == whole(run)
    content = load(folder).PluginTagToContent("hparams")
    start = plugin_data_pb2.HParamsPluginData.FromString(content["_hparams_/session_start_info"])
    found = start.session_start_info.hparams
    assert set(found) == set(parameters(run.experiment))
    assert found["local.lr"].number_value == run.experiment.local.lr
    assert found["model.name"].string_value == "mlp"
    end = plugin_data_pb2.HParamsPluginData.FromString(content["_hparams_/session_end_info"])
    assert end.session_end_info.status == 1  # success


@pytest.mark.parametrize("story", [HOLE, REPEATED])
def test_resuming_goes_on_in_the_same_folder_with_each_round_once(tiny, tmp_path, story):
    run = interrupted(tiny, tmp_path, ["tensorboard"], **story)
    folder = run.file("tensorboard")
    (last,) = [
        max(number for number, _ in points)
        for name, points in scalars(folder).items()
        if name == "train_loss"
    ]
    assert (run.saved_rounds > last) == (story is HOLE)
    (first,) = folder.iterdir()
    before = first.read_bytes()
    run = mnemos.resume(run.path, track=["tensorboard"])
    assert scalars(folder) == whole(run)
    assert len([*folder.iterdir()]) == 2
    assert first.read_bytes() == before
    mnemos.resume(run.path, track=["tensorboard"])  # nothing to do, and nothing said twice
    assert scalars(folder) == whole(run)


def test_a_folder_for_several_runs(tiny, tmp_path):
    run = mnemos.run(tiny, out=tmp_path / "runs", track=[f"tensorboard:folder={tmp_path / 'logs'}"])
    assert scalars(tmp_path / "logs" / run.path.name) == whole(run)
    assert not run.file("tensorboard").exists()


def test_without_the_package(tiny, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("tensorboard.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(
        ConfigError, match=r"track.tensorboard: it needs the package tensorboard .*extra 'track'"
    ):
        mnemos.run(tiny, out=tmp_path / "runs", track=["tensorboard"])
    assert not (tmp_path / "runs").exists()
