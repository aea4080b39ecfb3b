"""What a trained model says of samples from arrays and files, and how wrong ones are answered."""

import numpy as np
import pytest
import torch
from PIL import Image

import mnemos
from mnemos.data.load import load as load_data
from mnemos.errors import ConfigError, DataError
from mnemos.runs.trained.inputs import read_samples
from mnemos.runs.trained.load import of_run
from mnemos.runs.trained.model import Predictions
from mnemos.vector import Layout, save_model
from support.play import small

DIGIT = torch.full((1, 1, 8, 8), 2.0)


@pytest.fixture(scope="module")
def test_set(run):
    return load_data(run.experiment.data).test


def test_predictions_are_those_that_the_run_was_tested_with(run, test_set):
    """Stored samples go in, and the accuracy is the recorded one: nothing is scaled by hand."""
    found = run.predict(test_set.samples)
    assert np.mean(found.labels == test_set.labels.numpy()) == pytest.approx(run.accuracy, abs=1e-9)
    assert found.probabilities.sum(1) == pytest.approx(np.ones(len(found)), abs=1e-5)
    digit = test_set.samples[:1].numpy()
    mean, std = run.trained().about.mean[0], run.trained().about.std[0]
    by_hand = run.model()(torch.tensor((digit - mean) / std).float()).softmax(1)[0].tolist()
    assert found.probabilities[0].tolist() == pytest.approx(by_hand, abs=1e-6)


def test_batches_change_nothing(run, test_set):
    few = test_set.samples[:7]
    assert run.predict(few, batch=2).probabilities == pytest.approx(run.predict(few).probabilities, abs=1e-6)
    with pytest.raises(ConfigError, match="batch: found 0; allowed: 1 or more"):
        run.predict(few, batch=0)


def test_every_way_to_give_a_sample_is_the_same(run, test_set, tmp_path):
    """One digit as a tensor, list, array with channels last, npy, npz and png: 16 is white, as is 255."""
    digit = test_set.samples[:1]
    pixels = digit[0, 0].numpy()
    np.save(tmp_path / "one.npy", pixels)
    np.savez(tmp_path / "one.npz", x=digit.numpy(), y=np.zeros(1))
    picture = Image.fromarray((pixels.astype(float) * 255 / 16).round().astype(np.uint8))
    picture.save(tmp_path / "one.png")
    expected = run.predict(digit).probabilities[0]
    forms = [digit[0], [digit[0]], pixels, pixels[..., None], pixels.tolist(), tmp_path / "one.npy"]
    for form in [*forms, str(tmp_path / "one.npz")]:
        assert run.predict(form).probabilities[0] == pytest.approx(expected, abs=1e-6)
    for form in (tmp_path / "one.png", picture):  # rounded to whole pixels
        assert run.predict(form).probabilities[0] == pytest.approx(expected, abs=1e-2)
    several = run.predict([tmp_path / "one.npy", picture])
    assert several.inputs == (str(tmp_path / "one.npy"), "image")


def test_a_table_of_features(tmp_path):
    """A csv file for a model of features, with or without a line of names."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 3)).astype(np.float32), np.arange(80) % 2
    mnemos.write_npz(tmp_path / "own.npz", (x, y), (x[:8], y[:8]))
    data = {"name": "npz", "path": str(tmp_path / "own.npz")}
    run = mnemos.run(small(data=data, rounds=1), out=tmp_path)
    rows = "\n".join(",".join(map(str, row)) for row in x[:3])
    for head in ("", "height,width,depth\n"):
        (tmp_path / "rows.csv").write_text(f"{head}{rows}\n")
        found = run.predict(tmp_path / "rows.csv")
        assert found.probabilities == pytest.approx(run.predict(x[:3]).probabilities, abs=1e-6)
        assert found.inputs[1] == f"{tmp_path / 'rows.csv'}:1"
    for content, sentence in [
        ("1,2,3\n1,two,3\n", "line 2: found text, and numbers are expected"),
        ("1,2,3\n1,2\n", "rows of different lengths"),
        ("a,b\n", "no rows of numbers"),
        ("1,2\n", "samples of 3 numbers"),
        ("1,2,nan\n", "not finite"),
    ]:
        (tmp_path / "rows.csv").write_text(content)
        with pytest.raises(DataError, match=sentence):
            run.predict(tmp_path / "rows.csv")
    Image.new("L", (8, 8)).save(tmp_path / "image.png")
    with pytest.raises(DataError, match="samples of 3 numbers; expected an npy, npz or csv file"):
        run.predict(tmp_path / "image.png")


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (np.zeros((3, 9, 9)), r"the array has the shape \(3, 9, 9\), and the model takes of 8×8"),
        (np.full((8, 8), np.nan), "not finite"),
        (np.full((8, 8), 200.0), "values from 200 to 200, and the model takes pixels from 0 to 16"),
        (np.full((8, 8), 0.5), "values from 0.5 to 0.5, and the model takes pixels from 0 to 16"),
        (np.zeros((0, 1, 8, 8)), "no samples"),
        ([[1, 2], [3]], "different shapes"),
        (object(), "expected numbers, images or files"),
        ("nowhere.png", "nowhere.png doesn't exist"),
        (".", "is a folder"),
    ],
)
def test_what_does_not_fit_is_named(run, x, sentence):
    with pytest.raises(DataError, match=sentence):
        run.predict(x)


def test_files_that_do_not_fit_are_named(run, tmp_path):
    Image.new("RGB", (20, 10)).save(tmp_path / "wide.png")
    with pytest.raises(DataError, match=r"wide\.png is 10×20 .* takes 8×8 with 1 channel; --resize"):
        run.predict(tmp_path / "wide.png")
    assert len(run.predict(tmp_path / "wide.png", resize=True)) == 1
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"broken\.png can't be read as an image"):
        run.predict(tmp_path / "broken.png")
    np.savez(tmp_path / "two.npz", a=np.zeros(1), b=np.zeros(1))
    with pytest.raises(DataError, match="no array 'x'; found a, b"):
        run.predict(tmp_path / "two.npz")
    (tmp_path / "rows.csv").write_text("1,2\n")
    with pytest.raises(DataError, match="a csv file has rows of numbers"):
        run.predict(tmp_path / "rows.csv")


def test_pixels_need_a_known_range(run):
    about = run.trained().about.model_copy(update={"span": None})
    with pytest.raises(DataError, match="the range of the training samples isn't known"):
        read_samples(Image.new("L", (8, 8)), about)


def test_predictions_are_short_to_read():
    found = Predictions(("a.png", "<b>"), ("cat", "dog"), np.array([[0.25, 0.75], [0.9, 0.1]], np.float32))
    assert repr(found) == "a.png: dog (75.0 %)\n<b>: cat (90.0 %)"
    assert found.likeliest(0, 2) == [("dog", 0.75), ("cat", 0.25)]
    row = {"input": "a.png", "class": "dog", "probability": 0.75, "p(cat)": 0.25, "p(dog)": 0.75}
    assert found.table().loc[0].to_dict() == row
    assert "<td>&lt;b&gt;</td><td>cat</td><td>90.0 %</td>" in found._repr_html_()


def test_many_predictions_are_counted():
    found = Predictions(tuple(map(str, range(60))), ("a",), np.ones((60, 1), np.float32))
    assert repr(found).endswith("… and 50 more")
    assert found._repr_html_().endswith("<p>… and 10 more</p>")


def test_groups_have_a_model_each(tmp_path):
    """A group's model is chosen by its number; the federation's is the mean of what both predict."""
    of = [{"model": {"name": "mlp", "hidden": [width]}} for width in (4, 6)]
    groups = small(model={"name": "mixed", "of": of}, rounds=1)
    run = mnemos.run(groups, out=tmp_path)
    digits = torch.zeros(2, 1, 8, 8)
    each = [run.predict(digits, model=number).probabilities for number in (0, 1)]
    assert run.predict(digits).probabilities == pytest.approx(np.mean(each, 0), abs=1e-6)
    assert run.trained(1).about.accuracy is None  # the recorded one is that of both together
    with pytest.raises(ConfigError, match=r"model: .*found 2; allowed: a model from 0 to 1, or all"):
        run.trained(2)


def test_peers_are_chosen_by_client(tmp_path):
    """Clients 0 to 3 have a model each, which no other client has; without a choice there is none."""
    model = {"name": "mixed", "of": [{"model": {"name": "mlp", "hidden": [4]}}], "peers": True}
    run = mnemos.run(small(model=model, partition={"name": "iid", "clients": 4}, rounds=1), out=tmp_path)
    each = [run.predict(DIGIT, model=client).probabilities for client in range(4)]
    assert len({tuple(found[0]) for found in each}) == 4
    assert run.predict(DIGIT, model="all").probabilities == pytest.approx(np.mean(each, 0), abs=1e-6)
    with pytest.raises(ConfigError, match="each of 4 clients has a model of its own; choose"):
        run.predict(DIGIT)


def test_a_model_of_an_earlier_version(run, tmp_path):
    """A file without a description: the experiment and its data say what is needed."""
    old = mnemos.run(small(rounds=1), out=tmp_path)
    expected = old.predict(DIGIT).probabilities
    path = old.file("model.safetensors")
    module = old.trained().body
    save_model(path, module, *Layout.of(module).gather(module.state_dict()))
    assert old.predict(DIGIT).probabilities.tolist() == expected.tolist()
    assert of_run(old, False).about.experiment == old.experiment.hash()
    path.unlink()
    with pytest.raises(DataError, match="the run has no trained model yet"):
        old.predict(DIGIT)
    with pytest.raises(ConfigError, match="it has one model alone"):
        run.trained(1)
