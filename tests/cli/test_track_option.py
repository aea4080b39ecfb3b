import sys

import pandas as pd
import pytest

SMALL = "partition.clients=12 participation=0.34 'model={name: mlp, hidden: [8]}' engine=serial"


def test_run_and_resume_send_results_to_sinks(command, tmp_path):
    tables = tmp_path / "tables"
    track = f"--track tensorboard --track csv:folder={tables}"
    run = command(f"run {SMALL} rounds=2 --out {tmp_path}/runs {track} --json").json
    command(f"resume {run['run']} --rounds 3 {track}")
    (path,) = tables.iterdir()
    frame = pd.read_csv(path)
    assert frame[frame["name"] == "train_loss"]["round"].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("track", "sentence"),
    [
        ("wandbb", "error: track: there is no sink 'wandbb'; did you mean 'wandb'?"),
        ("csv:path=x", "error: track.csv.path: unknown field; allowed: folder"),
        ("wandb", "error: track.wandb: it needs the package wandb"),
    ],
)
def test_a_sink_that_cannot_work_is_named_before_anything_is_trained(
    command, tmp_path, monkeypatch, track, sentence
):
    monkeypatch.setitem(sys.modules, "wandb", None)
    ended = command(f"run {SMALL} --out {tmp_path}/runs --track {track}", code=2)
    assert ended.err.startswith(sentence)
    assert not (tmp_path / "runs").exists()


def test_a_lost_sink_is_said_once(command, tmp_path):
    (tmp_path / "file").write_text("")
    ended = command(f"run {SMALL} rounds=2 --out {tmp_path}/runs --track csv:folder={tmp_path}/file")
    assert ended.err.count("warning: tracking by csv is off (FileExistsError") == 1


@pytest.mark.parametrize("how", ["compare", "sweep --jobs 1"])
def test_each_run_of_a_study_is_sent(command, tmp_path, how):
    base = "{rounds: 2, partition: {clients: 12}, participation: 0.34, engine: serial}"
    study = tmp_path / "study.yaml"
    study.write_text(
        f"base: {base}\nvariants: {{small: {{local.lr: 0.01}}, large: {{local.lr: 0.1}}}}\nseeds: [0]"
    )
    tables = tmp_path / "tables"
    command(f"{how} {study} --out {tmp_path}/runs --track csv:folder={tables}")
    frames = [pd.read_csv(path) for path in tables.iterdir()]
    assert [sorted(set(frame["round"])) for frame in frames] == [[1, 2], [1, 2]]


def test_a_sink_that_cannot_work_is_named_before_a_sweep_begins(command, tmp_path):
    study = tmp_path / "study.yaml"
    study.write_text("grid: {local.lr: [0.01, 0.1]}")
    ended = command(f"sweep {study} --out {tmp_path}/runs --track wandbb", code=2)
    assert ended.err.startswith("error: track: there is no sink 'wandbb'; did you mean 'wandb'?")
    assert not (tmp_path / "runs").exists()
