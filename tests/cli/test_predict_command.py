"""`mnemos predict` and `mnemos export`: what they print, write and refuse."""

import csv
from pathlib import Path

import numpy as np
import pytest

import mnemos
from support.play import small


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on the digits."""
    return mnemos.run(small(rounds=1), out=tmp_path_factory.mktemp("runs"))


@pytest.fixture(autouse=True)
def samples(tmp_path, monkeypatch):
    """A working folder with digits.npy: 60 samples."""
    monkeypatch.chdir(tmp_path)
    samples = (np.arange(60 * 64) % 17).astype(np.uint8).reshape(60, 8, 8)
    np.save("digits.npy", samples)
    np.save("one.npy", samples[0])
    return samples


def test_predict_prints_classes_and_writes_all_of_them(command, trained, samples):
    found = trained.predict(samples)
    head, first, *lines = command(f"predict {trained.path} digits.npy -o all.csv").out.splitlines()
    assert head.split() == ["input", "class", "probability", "then"]
    assert first.split()[:3] == ["digits.npy:0", found.classes[0], f"{100 * found.confidence[0]:.1f}"]
    assert lines[-1] == "… and 10 more of 60 samples, all in all.csv"
    rows = [*csv.DictReader(Path("all.csv").read_text().splitlines())]
    assert [row["class"] for row in rows] == found.classes
    assert float(rows[59]["p(3)"]) == pytest.approx(found.probabilities[59, 3], abs=1e-6)
    assert command(f"predict {trained.path} digits.npy").out.endswith("; -o FILE.csv writes all of them\n")


def test_predict_as_json(command, trained, samples):
    (one,) = command(f"predict {trained.path} one.npy --json").json["predictions"]
    expected = trained.predict(samples[0])
    assert (one["input"], one["class"]) == ("one.npy", expected.classes[0])
    assert [*one["probabilities"].values()] == pytest.approx(expected.probabilities[0].tolist())


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("predict {} one.npy --model first", "model: found 'first'; allowed: the number of a model, or all"),
        ("predict {} one.npy -o all.xls", "all.xls"),
        ("predict . one.npy", "there is no model here"),
        ("export nowhere", "nowhere: there is no run here"),
        ("export {} -o one.npy", "one.npy"),
    ],
)
def test_what_is_wrong_is_one_sentence(command, trained, line, sentence):
    ended = command(line.format(trained.path), code=2)
    assert sentence in ended.err
    assert len(ended.err.splitlines()) == 1
    assert command(f"predict {trained.path} nowhere.png", code=3).err == "error: nowhere.png doesn't exist\n"


def test_export_says_what_it_wrote_and_that_works(command, trained, samples):
    lines = command(f"export {trained.path}").out.splitlines()
    folder = f"exported/{trained.path.name}"
    assert lines == [
        f"files: {folder} (model.safetensors, config.json, README.md)",
        "       README.md says that no licence is given; --licence names one",
        f"next:  mnemos predict {folder} FILES   (classify images, arrays or tables)",
    ]
    (one,) = command(f"predict {folder} one.npy --json").json["predictions"]
    assert one["class"] == trained.predict(samples[0]).classes[0]
    again = command(f"export {trained.path} --licence MIT --json").json
    assert again["files"] == ["model.safetensors", "config.json", "README.md"]
    assert "license: MIT" in Path(folder, "README.md").read_text()
