"""`mnemos pretrain`: from the command line to a file that an experiment starts from."""

import pytest
from PIL import Image

from mnemos.cli.commands import pretrain as module
from mnemos.models.encoder import load_encoder
from mnemos.pretrain import cache

TINY = "pretrain --model mlp model.hidden=[8] --classes 3 --images 20 --batch 16 --size 8 channels=1"


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MNEMOS_CACHE", str(tmp_path / "cache"))


def test_a_file_that_an_experiment_starts_from(command, tmp_path):
    ended = command(f"{TINY} --out deep/e.safetensors --json")
    encoder = load_encoder(tmp_path / "deep/e.safetensors")
    assert ended.json == {
        "status": "finished",
        "encoder": "deep/e.safetensors",
        "digest": encoder.digest,
        "accuracy": encoder.accuracy,
    }
    assert "pre-training: step 3/3, loss" in ended.err
    again = command(f"{TINY} --out again.safetensors")
    assert "pre-training" not in again.err  # from the cache
    assert "accuracy on unseen fractals" in again.out
    assert "start.path=again.safetensors" in again.out
    run = command(
        "run model.name=mlp model.hidden=[8] start.name=file start.path=again.safetensors --clients 5 "
        "participation=0.4 --rounds 1 --engine serial --quiet --json"
    )
    assert run.json["status"] == "finished"


def test_options_from_a_file(command, tmp_path):
    (tmp_path / "p.yaml").write_text(
        "model: {name: mlp, hidden: [8]}\nclasses: 3\nimages: 20\nbatch: 16\nsize: 8\nchannels: 1\n"
        "labels: multi\n"
    )
    assert command("pretrain p.yaml epochs=2 --quiet --json").json["status"] == "finished"
    options = load_encoder(tmp_path / "encoder.safetensors").about["options"]
    assert (options["labels"], options["epochs"], options["classes"]) == ("multi", 2, 3)


@pytest.mark.parametrize("extra", ["", "--multi", "channels=1"])
def test_a_sheet_of_64(command, tmp_path, extra):
    command(f"pretrain --sheet sheets/a.png --size 16 --classes 64 {extra}")
    with Image.open(tmp_path / "sheets/a.png") as sheet:
        assert sheet.size == (128, 128)
    assert not (tmp_path / "encoder.safetensors").exists()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--model resnet", "model: there is no model 'resnet'"),
        ("--classes 1", "classes: found 1"),
        ("image=3", "image"),
        ("transforms=[4,2]", "transforms: found 4 to 2; allowed: from 2 to 16"),
        ("labels=two", "labels"),
        ("--model lenet --size 8", "at least 16×16"),
        ("--model logistic", "nothing but a head"),
        ("--model resnet10 model.width=0.1 --batch 1", "batch: found 1, but batch-norm"),
        ("--out encoder.pt", "out: found 'encoder.pt'; allowed: .safetensors"),
        ("--sheet sheet.txt", "sheet: found 'sheet.txt'; allowed: .png"),
        ("optimizer.name=rmsgd --model mlp", "optimizer: rmsgd sets rates by the ranks"),
        ("missing.yaml", "missing.yaml"),
    ],
)
def test_wrong_input_is_answered_at_once(command, tmp_path, line, sentence):
    ended = command(f"pretrain {line}", code=2)
    assert sentence in ended.err
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_ctrl_c_leaves_nothing_behind(command, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cache, "train", interrupted)
    ended = command(f"{TINY} --json", code=130)
    assert ended.json == {
        "status": "interrupted",
        "error": "interrupted; no encoder was written",
        "exit_code": 130,
    }
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_file_that_can_not_be_written(command, tmp_path, monkeypatch):
    def full(path, encoder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "save_encoder", full)
    assert (
        "out: found 'encoder.safetensors', which can't be written (No space left" in command(TINY, code=2).err
    )
