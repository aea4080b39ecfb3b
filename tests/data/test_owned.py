"""What owners say of their data, and what all of them go by."""

import numpy as np
import pytest
import torch

from mnemos.data.load import load
from mnemos.data.owned import Described, agree, arranged, describe, runs
from mnemos.data.sources.elsewhere import Elsewhere, Owner
from mnemos.data.sources.npz import Npz, write_npz
from mnemos.data.sources.owners import Owners
from mnemos.errors import ConfigError, DataError


def said(**changes):
    values = {
        "shape": (2,), "kind": "float32", "classes": ("x",), "train": 4, "test": 0,
        "mean": (0.0, 1.0), "variance": (1.0, 0.0),
    }  # fmt: skip
    return Described(**{**values, **changes})


def test_scale_by_hand():
    """1 sample of mean 0 and variance 1, and 3 of mean 4 and variance 9: mean 3, and
    variance (1·(1 + 9) + 3·(9 + 1)) / 4 = 10. The other feature is 1 everywhere: its deviation becomes 1."""
    one, other = said(train=1), said(train=3, mean=(4.0, 1.0), variance=(9.0, 0.0))
    agreement = agree({"a": one, "b": other})
    assert agreement.mean == (3.0, 1.0)
    assert agreement.std == pytest.approx((np.sqrt(10), 1.0))


def test_all_owners_have_the_scale_of_their_data_together(tmp_path):
    generator = np.random.default_rng(0)
    x, y = generator.integers(0, 256, (90, 3, 5, 5), np.uint8), np.arange(90) % 3
    parts = [slice(0, 20), slice(20, 90)]
    paths = [str(write_npz(tmp_path / f"{n}.npz", (x[p], y[p]), (x[:9], y[:9]))) for n, p in enumerate(parts)]
    whole = load(Npz(path=str(write_npz(tmp_path / "all.npz", (x, y), (x[:9], y[:9])))))
    found = load(Owners(paths=tuple(paths)))
    assert found.mean == pytest.approx(whole.mean, rel=1e-12)
    assert found.std == pytest.approx(whole.std, rel=1e-12)
    assert found.train.owners.bincount().tolist() == [20, 70]
    assert len(found.test) == 18
    assert found.owners == tuple(paths)


def test_classes_are_those_of_all_and_samples_in_their_order(tmp_path):
    """One owner has the classes 10 and 2, one has 9: numbers are in the order of numbers."""
    x = np.arange(6, dtype=np.float32)[:, None]
    a = Npz(path=str(write_npz(tmp_path / "a.npz", (x[:3], np.array([10, 2, 10])), (x[:1], np.array([2])))))
    b = Npz(path=str(write_npz(tmp_path / "b.npz", (x[3:], np.array([9, 9, 9])), (x[:1], np.array([9])))))
    each = {"a": a.load(), "b": b.load()}
    agreement = agree({name: describe(data) for name, data in each.items()})
    assert agreement.classes == ("2", "9", "10")
    data = arranged(each["a"], agreement)
    assert data.train.labels.tolist() == [0, 2, 2]
    assert data.train.samples.flatten().tolist() == [1, 0, 2]
    assert arranged(each["b"], agreement).train.labels.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (said(shape=(3,), mean=(0.0,) * 3, variance=(0.0,) * 3), r"b has samples of shape \[3\] \(float32\)"),
        (said(kind="uint8"), r"b has samples of shape \[2\] \(uint8\), and a of shape \[2\] \(float32\)"),
        (said(mean=(0.0,)), "b has a mean of 1 numbers; 2 are expected"),
        (said(classes=("x", "z")), "b holds the class 'z', which is none of data.classes"),
    ],
)
def test_owners_that_do_not_fit_together_are_named(other, words):
    with pytest.raises(DataError, match=words):
        agree({"a": said(), "b": other}, ("x", "y"))


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ({"train": 10**12}, "train: found 1000000000000; allowed: ≥ 1 and ≤ 10000000"),
        ({"test": 10**12}, "test: found 1000000000000; allowed: ≥ 0 and ≤ 10000000"),
        ({"shape": (1000, 1000, 1000)}, r"found samples of shape \[1000, 1000, 1000\]; allowed"),
        ({"mean": (1e300, 0.0)}, "mean.0: found 1e\\+300; allowed: ≤ 1e\\+39"),
        ({"variance": (1.0, 1e300)}, "variance.1: found 1e\\+300; allowed: ≤ 1e\\+78"),
        ({"mean": (float("nan"), 0.0)}, "mean.0: found nan"),
        ({"classes": ("9" * 5000,)}, "classes.0: found '999"),
        ({"classes": ("\x1b[2J",)}, "found a class whose name can't be printed"),
    ],
)
def test_what_can_not_be_true_is_refused(lie, words):
    """It would take the server's memory, or its terminal."""
    with pytest.raises(ConfigError, match=words):
        Described.parse({**said().model_dump(), **lie})


def test_labels_as_runs():
    assert runs(np.array([0, 0, 3, 0])) == ((0, 2), (3, 1), (0, 1))
    assert runs(np.zeros(0, np.int64)) == ()


def test_data_elsewhere_has_the_right_form_and_takes_no_room():
    owners = (
        Owner(owner="a", train=10**6, test=2, tasks=((1, 10), (2, 10**6 - 10))),
        Owner(owner="b", train=5),
    )
    source = Elsewhere(
        shape=(3, 500, 500),
        kind="uint8",
        classes=("x", "y", "z"),
        mean=(0.0,) * 3,
        std=(1.0,) * 3,
        owners=owners,
    )
    data = source.load()
    assert data.remote
    assert data.train.samples.shape == (10**6 + 5, 3, 500, 500)
    assert data.train.samples.untyped_storage().nbytes() == 1
    assert data.train.labels.bincount().tolist() == [5, 10, 10**6 - 10]
    assert torch.equal(data.train.owners.bincount(), torch.tensor([10**6, 5]))
    assert data.test.owners.tolist() == [0, 0]


def test_data_elsewhere_that_can_not_be(tmp_path):
    base = {"shape": (1,), "kind": "float32", "classes": ("x",), "mean": (0.0,), "std": (1.0,)}
    with pytest.raises(DataError, match="no owner has joined"):
        Elsewhere(**base).load()
    with pytest.raises(DataError, match="a has 3 training samples, and says tasks of 2"):
        Elsewhere(**base, owners=(Owner(owner="a", train=3, tasks=((0, 2),)),)).load()
    with pytest.raises(DataError, match=r"data\.paths is empty"):
        load(Owners())
