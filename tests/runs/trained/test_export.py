"""An exported model: what is in the folder, that others can use it, and what is refused."""

import json

import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from safetensors import safe_open

import mnemos
from mnemos.errors import ConfigError, DataError
from mnemos.experiment.overrides import parse_yaml
from mnemos.runs.trained.description import HEADER
from support.play import small

DIGITS = torch.arange(3 * 64).reshape(3, 1, 8, 8) % 17


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    return run.export(tmp_path_factory.mktemp("hub") / "model", formats=["torch", "onnx"], licence="MIT")


def test_the_folder_predicts_without_the_run(run, folder):
    assert {path.name for path in folder.iterdir()} == {
        "README.md", "config.json", "model.onnx", "model.pt2", "model.safetensors",
    }  # fmt: skip
    expected = run.predict(DIGITS).probabilities.tolist()
    for place in (folder, folder / "model.safetensors", run.path):
        assert mnemos.load(place).predict(DIGITS).probabilities.tolist() == expected


def test_what_travels_with_the_weights(run, folder):
    """Scale, layout, classes, architecture, hash and accuracy: in the header and in config.json."""
    about = json.loads((folder / "config.json").read_text())
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert json.loads(file.metadata()[HEADER]) == about
        assert {name: file.get_slice(name).get_shape() for name in file.keys()} == {  # noqa: SIM118
            name: list(tensor.shape) for name, tensor in run.model().state_dict().items()
        }
    assert about["model"] == {"name": "mlp", "hidden": [8], "norm": "none", "groups": 2}
    assert (about["shape"], about["span"], about["kind"]) == ([1, 8, 8], [0, 16], "uint8")
    assert about["classes"] == [str(digit) for digit in range(10)]
    assert (about["experiment"], about["rounds"]) == (run.experiment.hash(), 3)
    assert about["accuracy"] == run.accuracy


def test_other_programs_run_it(run, folder):
    """model.pt2 and model.onnx take stored samples, any number of them, and give the same probabilities."""
    for count in (1, 3):
        samples = DIGITS[:count].float()
        expected = run.predict(DIGITS[:count]).probabilities
        program = torch.export.load(folder / "model.pt2").module()
        assert program(samples).detach().numpy() == pytest.approx(expected, abs=1e-6)
        (found,) = ReferenceEvaluator(onnx.load(folder / "model.onnx")).run(
            None, {"samples": samples.numpy()}
        )
        assert np.asarray(found) == pytest.approx(expected, abs=1e-6)


def test_the_card(run, folder):
    card = (folder / "README.md").read_text()
    _, front, text = card.split("---\n", 2)
    assert parse_yaml(front) == {
        "license": "MIT",
        "library_name": "mnemos",
        "pipeline_tag": "image-classification",
        "tags": ["federated-learning", "mnemos"],
        "metrics": ["accuracy"],
    }
    assert f"| accuracy on the test set | {100 * run.accuracy:.1f} % |" in text
    assert f"| 3 | {100 * run.forgetting_matrix(3).mean:.1f} |".replace("-", "−") in text
    assert "no guarantee of differential privacy" in text
    assert "to be filled in by the owner" in text
    assert f"experiment `{run.experiment.hash()}`" in text


def test_no_licence_and_nothing_measured_are_said(tmp_path):
    experiment = small(rounds=1, evaluate={"every": 1, "test_last": 1})
    folder = mnemos.run(experiment, out=tmp_path).export(tmp_path / "out")
    card = (folder / "README.md").read_text()
    assert "license: unknown" in card
    assert "No licence is given" in card
    assert "forgets of each other's data was not measured" in card


def test_an_export_replaces_an_earlier_one_and_nothing_else(run, tmp_path):
    folder = run.export(tmp_path / "out", formats=["torch"])
    run.export(folder)
    assert not (folder / "model.pt2").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    for place in (tmp_path / "mine", run.path):
        with pytest.raises(ConfigError, match="it is there already"):
            run.export(place)
    with pytest.raises(ConfigError, match="formats: found pickle; allowed: onnx, torch"):
        run.export(tmp_path / "new", formats=["pickle"])


def test_what_is_no_model_is_named(run, folder, tmp_path):
    with pytest.raises(ConfigError, match="there is no model here; expected a folder"):
        mnemos.load(tmp_path)
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    about = json.loads((folder / "config.json").read_text())
    for change, sentence in [
        ({"format": 2}, "description can't be used"),
        ({"mean": [1, 2]}, "found 2 numbers in 'mean'; samples have 1 channels"),
        ({"model": {"name": "mlp", "hidden": [9]}}, r"tensor .* is \(8, 64\), expected \(9, 64\)"),
        ({"model": {"name": "perceptron"}}, "perceptron"),
        ({"classes": []}, "classes"),
    ]:
        (copy / "config.json").write_text(json.dumps({**about, **change}))
        with pytest.raises(DataError, match=sentence):
            mnemos.load(copy)
    (copy / "config.json").write_text("[")
    with pytest.raises(DataError, match="description is damaged"):
        mnemos.load(copy)
