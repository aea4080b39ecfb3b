"""Texts end to end, as a user would: run with WSM and a forgetting matrix, report, predict, export."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import mnemos
from mnemos.cli.options import data_changes
from mnemos.data.messages import messages
from mnemos.errors import DataError


@pytest.fixture(autouse=True)
def reviews(tmp_path, monkeypatch):
    """A working folder with reviews.csv: 8 writers' messages."""
    monkeypatch.chdir(tmp_path)
    with Path("reviews.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["text", "label", "writer"])
        table.writerows(messages(8, 60))


def test_from_a_table_to_a_prediction(command):
    """WSM learns the topics, forgetting is a matrix of trained models by clients' data, the report has it."""
    options = "data.owner=writer partition.name=natural partition.validation=0.2 participation=0.5"
    local = "local.epochs=5 local.batch=16 local.lr=1 evaluate.forgetting=[1,12] engine=serial"
    ended = command(f"run --data reviews.csv --loss wsm --rounds 12 {options} {local} --json -q")
    run = mnemos.Run.at(ended.json["run"])
    assert run.experiment.model.name == "text"  # as none was named
    assert run.path.name.startswith("reviews-fedavg-wsm")
    assert run.accuracy > 0.7  # guessing has one in eight
    matrix = run.forgetting_matrix(12).forgetting
    assert matrix.shape == (4, 4)
    assert np.isfinite(matrix.to_numpy()).all()

    page = command(f"report {run.path} -o report.html")
    assert page.code == 0
    assert "forgetting" in Path("report.html").read_text().lower()

    Path("one.txt").write_text("My parcel with the kettle has not arrived at the shop after a fortnight.\n")
    words = "'i can not sign in, my passcode is refused' one.txt reviews.csv"
    found = command(f"predict {run.path} {words} --json").json["predictions"]
    assert len(found) == 2 + 480
    assert [one["class"] for one in found[:2]] == ["account", "delivery"]
    assert [one["input"] for one in found[1:3]] == ["one.txt", "reviews.csv:0"]

    command(f"export {run.path} -o model --torch --onnx")
    assert mnemos.load("model").predict("my passcode is refused").classes == ["account"]
    about = json.loads(Path("model/config.json").read_text())
    assert (about["words"][0], about["mean"]) == ("the", [])
    program = torch.export.load("model/model.pt2").module()
    ids = mnemos.load("model").about.vocabulary.encode(["my passcode is refused"] * 3, about["shape"][0])
    expected = mnemos.load("model").predict(ids).probabilities
    assert program(ids).detach().numpy() == pytest.approx(expected, abs=1e-6)
    card = Path("model/README.md").read_text()
    assert "pipeline_tag: text-classification" in card
    assert "It takes texts, of which it reads the first" in card
    assert "`model.onnx` takes token ids (int32) and returns probabilities." in card


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model of texts that has hardly learned."""
    data = {"name": "messages", "writers": 4, "each": 20}
    base = {"data": data, "partition": {"clients": 2}, "participation": 1, "rounds": 1, "engine": "serial"}
    return mnemos.run(base, out=tmp_path_factory.mktemp("runs")).trained()


def test_what_a_model_of_texts_takes(trained):
    assert repr(trained).startswith("<TrainedModel text: texts of")
    assert trained.predict("a long message that goes on and on for ever and a day").inputs == (
        "a long message that goes on and on for …",
    )
    Path("one.csv").write_text("anything\nhello there\n")
    assert trained.predict(Path("one.csv")).inputs == ("one.csv",)
    for wrong, sentence in (
        ("  ", "found an empty text"),
        ("missing.txt", r"missing\.txt doesn't exist"),
        (Path(), r"\. is a folder, and files are expected"),
        (np.zeros((2, 3)), r"found ndarray of type float64; the model takes texts"),
        (np.full((1, trained.about.shape[0]), 10**6), "ids from 1000000 to 1000000; allowed: 0 to"),
        ([], "found list of type float64; the model takes texts"),
    ):
        with pytest.raises(DataError, match=sentence):
            trained.predict(wrong)


def test_data_is_read_as_texts_where_it_looks_like_texts():
    """By a column `text`, by JSON Lines, by txt files in folders, and by options of texts."""

    def chosen(path, *options):
        return data_changes(path, options)["data"]["name"]

    Path("numbers.csv").write_text("age,label\n1,2\n")
    Path("folder/good").mkdir(parents=True)
    Path("folder/good/1.txt").write_text("yes")
    Path("images/cat").mkdir(parents=True)
    assert chosen("reviews.csv") == chosen("any.jsonl") == chosen("folder/") == "text"
    assert chosen("numbers.csv") == chosen("missing.csv") == "csv"
    assert chosen("numbers.csv", "data.text") == chosen("rows.parquet", "data.words") == "text"
    assert chosen("reviews.csv", "data.features") == "csv"
    assert chosen("images/") == "folder"
