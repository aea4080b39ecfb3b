"""Pre-training: it learns, the same everywhere, and every encoder once."""

import math
import os
from contextlib import ExitStack
from itertools import islice
from multiprocessing import Pipe

import numpy as np
import pytest
import torch

from mnemos.data.fractals import HELD_OUT
from mnemos.errors import ConfigError, DivergedError
from mnemos.models.model import models
from mnemos.optim.sgd import Sgd
from mnemos.pretrain import cache
from mnemos.pretrain.pretraining import Pretraining
from mnemos.pretrain.train import _hits, _loss, _Supply, train
from support.processes import forked

MLP = models.parse({"name": "mlp", "hidden": [16]})
CNN = models.parse({"name": "cnn", "width": 0.125, "norm": "batch"})
SHAPE = (1, 8, 8)
TINY = Pretraining(classes=3, images=20, batch=16)


def silent(done, total, note):
    pass


def test_it_learns():
    """Four classes of images that it hasn't seen: chance is a quarter."""
    options = Pretraining(classes=4, images=150, batch=16, background="black", epochs=2, lr=5e-3)
    notes = []
    encoder = train(options, CNN, (1, 16, 16), lambda *news: notes.append(news))
    assert encoder.accuracy > 0.5
    assert [done for done, _, _ in notes] == sorted({done for done, _, _ in notes})
    assert notes[-1][:2] == (74, 74)
    assert all(note.startswith("loss ") and "accuracy" in note for _, _, note in notes)


@pytest.mark.parametrize("labels", ["single", "multi"])
def test_every_tensor_of_the_encoder_is_trained_and_the_head_is_left_out(labels):
    encoder = train(TINY.model_copy(update={"labels": labels}), CNN, SHAPE, silent)
    before = TINY.build(CNN, SHAPE).state_dict()
    assert encoder.tensors.keys() == {name for name in before if not name.startswith("head.")}
    for name, tensor in encoder.tensors.items():
        assert tensor.dtype == before[name].dtype
        assert not torch.equal(tensor, before[name]), name
    counters = [tensor for name, tensor in encoder.tensors.items() if name.endswith("num_batches_tracked")]
    assert {int(counter) for counter in counters} == {TINY.total} == {3}


def test_it_says_what_it_is():
    about = train(TINY, CNN, SHAPE, silent).about
    assert about["data"] == "fractals"
    assert models.parse(about["model"]) == CNN
    assert Pretraining.parse(about["options"]) == TINY
    assert (about["shape"], about["head"]) == ([1, 8, 8], "head")
    assert 0 <= about["accuracy"] <= 1
    assert len(about["mean"]) == len(about["std"]) == 1


def test_the_same_on_any_number_of_cores(monkeypatch):
    digests = set()
    for number in ("1", "3"):
        monkeypatch.setenv("MNEMOS_CORES", number)
        digests.add(train(TINY, CNN, SHAPE, silent).digest)
    assert len(digests) == 1
    assert train(TINY.model_copy(update={"seed": 1}), CNN, SHAPE, silent).digest not in digests


def test_a_pass_sees_every_image_once():
    """60 images in batches of 16: three whole ones, in an order of each pass's own."""
    supply = _Supply(TINY, TINY.fractals(SHAPE))
    places = list(islice(supply._order(), 2 * TINY.epoch))
    assert [len(batch) for batch in places] == [16] * 6
    first, second = np.concatenate(places[:3]), np.concatenate(places[3:])
    assert len(set(first)) == len(set(second)) == 48
    assert first.tolist() != second.tolist()
    assert max(first.max(), second.max()) < 60 < HELD_OUT


def test_lengths():
    assert (TINY.epoch, TINY.total) == (3, 3)
    assert Pretraining(classes=3, images=20, batch=16, epochs=4).total == 12
    assert Pretraining(classes=3, images=20, batch=16, epochs=4, steps=5).total == 5
    assert Pretraining(classes=3, images=2, batch=16).total == 1


def test_losses_by_hand():
    """Multi-label: −w log p for those there, −log(1 − p) for the others, w = 4 classes / 2 labels."""
    logits = torch.tensor([[0.0, 1.0, -1.0, 0.0]])
    present = torch.tensor([[1.0, 0.0, 1.0, 0.0]])

    def p(x):
        return 1 / (1 + math.exp(-x))

    expected = -(2 * math.log(p(0)) + math.log(1 - p(1)) + 2 * math.log(p(-1)) + math.log(1 - p(0))) / 4
    multi = Pretraining(classes=4, labels="multi")
    assert float(_loss(multi, logits, present)) == pytest.approx(expected)
    single = float(_loss(Pretraining(classes=4), logits, torch.tensor([[0.0, 1.0, 0, 0]])))
    assert single == pytest.approx(-math.log(math.e / (2 + math.e + 1 / math.e)))
    assert _hits(logits, present) == 0
    assert _hits(-logits, present) == 1


def test_what_can_not_be_trained_is_refused():
    for shape in ((3, 16, 8), (2, 16, 16), (10,), (3, 4, 4)):
        with pytest.raises(ConfigError, match="fractals are square images"):
            TINY.verify(MLP, shape)
    with pytest.raises(ConfigError, match="batch: found 1, but batch-norm"):
        TINY.model_copy(update={"batch": 1}).verify(CNN, SHAPE)
    with pytest.raises(ConfigError, match="nothing but a head"):
        TINY.verify(models.parse("logistic"), SHAPE)
    with pytest.raises(ConfigError, match="transforms: found 4 to 2"):
        Pretraining.parse({"transforms": [4, 2]})


def test_a_rate_that_is_too_high_is_no_traceback():
    with pytest.raises(DivergedError, match=r"pre-training, step \d+: it is not finite any more"):
        train(TINY.model_copy(update={"lr": 1e30, "optimizer": Sgd(), "epochs": 3}), MLP, SHAPE, silent)


# --- the cache ----------------------------------------------------------------------------------------


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MNEMOS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "encoders"


def test_the_key_is_of_all_that_matters():
    keys = {
        TINY.key(MLP, SHAPE),
        TINY.key(CNN, SHAPE),
        TINY.key(MLP, (3, 8, 8)),
        *(
            TINY.model_copy(update=change).key(MLP, SHAPE)
            for change in (
                {"seed": 1},
                {"lr": 0.1},
                {"labels": "multi"},
                {"steps": 2},
                {"transforms": (2, 3)},
            )
        ),
    }
    assert len(keys) == 8
    assert TINY.key(MLP, SHAPE) in keys


def test_an_encoder_is_trained_once(own_cache):
    news = []
    first = cache.obtain(TINY, MLP, SHAPE, lambda *args: news.append(args))
    assert news
    news.clear()
    again = cache.obtain(TINY, MLP, SHAPE, lambda *args: news.append(args))
    assert not news
    assert again.digest == first.digest
    (path,) = own_cache.glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:100])  # damaged: made again
    mended = cache.obtain(TINY, MLP, SHAPE, lambda *args: news.append(args))
    assert news
    assert mended.digest == first.digest


def test_a_cache_that_can_not_be_written_only_costs_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MNEMOS_CACHE", str(tmp_path / "file"))
    assert cache.obtain(TINY, MLP, SHAPE, silent).accuracy is not None


def obtain(connection, folder):
    """As soon as it is told to, an encoder from the cache below a folder."""
    os.environ["MNEMOS_CACHE"] = folder
    news = []
    connection.recv()
    options = TINY.model_copy(update={"images": 60})
    encoder = cache.obtain(options, MLP, SHAPE, lambda *given: news.append(given))
    connection.send({"steps": sum(done > 0 for done, *_ in news), "digest": encoder.digest})


def test_two_processes_train_it_once(own_cache):
    """Both are let go at the same moment; one trains, the other waits for it or finds it."""
    pipes = [Pipe() for _ in range(2)]
    with ExitStack() as stack:
        for _, theirs in pipes:
            stack.enter_context(forked(obtain, theirs, os.environ["MNEMOS_CACHE"]))
        for ours, _ in pipes:
            ours.send("go")
        assert all(ours.poll(200) for ours, _ in pipes)
        found = [ours.recv() for ours, _ in pipes]
    assert sorted(one["steps"] > 0 for one in found) == [False, True]
    assert len({one["digest"] for one in found}) == 1
    assert len(list(own_cache.glob("*.safetensors"))) == 1
