"""Every source on small files in its published format: what is read, and what is said of damaged files."""

from __future__ import annotations

import gzip
import io
import json
import struct
import sys
import tarfile
import threading
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mnemos.data.dataset import Dataset, Source, Split, sources
from mnemos.data.load import forget, load
from mnemos.data.sources import _scale, femnist, parquet
from mnemos.data.sources._arrays import split_off
from mnemos.data.sources._scale import mean_std
from mnemos.data.sources.npz import write_npz
from mnemos.errors import ConfigError, DataError, MnemosError

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, no network, no user's cache."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("MNEMOS_DATA", str(folder))
    monkeypatch.setenv("MNEMOS_OFFLINE", "1")
    monkeypatch.setattr(femnist, "cache_folder", lambda: tmp_path / "cache")
    forget()
    return folder


def read(spec: str | dict[str, Any]) -> Dataset:
    return sources.parse(spec).load()


def refused(spec: str | dict[str, Any], *hints: object, kind: type[MnemosError] = DataError) -> str:
    """The one sentence that a source answers with; it has all the hints."""
    with pytest.raises(kind) as error:
        read(spec)
    text = str(error.value)
    assert "\n" not in text
    assert not text.endswith(".")
    for hint in hints:
        assert str(hint) in text
    return text


def same(one: Dataset, other: Dataset) -> bool:
    return all(
        torch.equal(a.samples, b.samples) and torch.equal(a.labels, b.labels)
        for a, b in ((one.train, other.train), (one.test, other.test))
    )


def images(count: int, *shape: int) -> Any:
    return RNG.integers(0, 256, (count, *shape), dtype=np.uint8)


# All sources


def test_all_sources_are_registered() -> None:
    assert sources.names() == [
        "cifar10", "cifar100", "csv", "digits", "elsewhere", "fashion-mnist", "femnist", "folder", "fractals",
        "huggingface", "messages", "mnist", "npz", "owners", "parquet", "text",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "mnist", "fashion-mnist", "femnist"])
def test_an_empty_data_folder_says_what_to_put_where(name: str, data: Path) -> None:
    folder = {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary"}.get(name, name)
    refused(name, name, data / folder, "MNEMOS_DATA")


@pytest.mark.parametrize("name", ["npz", "folder", "parquet"])
def test_a_path_must_be_given_and_exist(name: str, tmp_path: Path) -> None:
    refused(name, "path: it has no default and must be given", kind=ConfigError)
    refused({"name": name, "path": str(tmp_path / "nothing")}, tmp_path / "nothing")


def test_parts_survive_a_dump() -> None:
    part = sources.parse({"name": "npz", "path": "a.npz", "layout": "nhwc"})
    assert part.dump() == {"name": "npz", "path": "a.npz", "test": 0.2, "layout": "nhwc"}
    assert sources.parse(part.dump()) == part


# Digits


def test_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    digits = read("digits")
    rows = [
        [*sample, int(label)]
        for part in (digits.train, digits.test)
        for sample, label in zip(part.samples.flatten(1).tolist(), part.labels, strict=True)
    ]
    assert sorted(rows) == sorted([*sample, label] for sample, label in zip(pixels, labels, strict=True))


def test_digits_keep_their_units_and_split_evenly() -> None:
    digits = read("digits")
    assert digits.shape == (1, 8, 8)
    assert digits.train.samples.dtype == torch.uint8
    assert int(digits.train.samples.max()) == 16
    assert digits.classes == tuple("0123456789")
    assert (len(digits.train), len(digits.test)) == (1438, 359)
    whole = digits.train.labels.bincount() + digits.test.labels.bincount()
    assert (digits.test.labels.bincount() - 0.2 * whole).abs().max() < 1
    assert digits.mean[0] == pytest.approx(digits.train.samples.double().mean().item())
    assert same(digits, read("digits"))
    assert len(read({"name": "digits", "test": 0.5}).test) == 898


def test_digits_refuse_a_share_that_leaves_nothing() -> None:
    refused({"name": "digits", "test": 1.0}, "test: found 1.0; allowed: > 0 and < 1", kind=ConfigError)


# CIFAR


def cifar10(folder: Path, records: int = 4) -> Any:
    folder.mkdir(parents=True)
    pixels = images(6 * records, 3, 32, 32)
    labels = np.arange(6 * records) % 10
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    for i, name in enumerate(names):
        part = slice(i * records, (i + 1) * records)
        flat = pixels[part].reshape(records, -1)
        content = np.concatenate([labels[part, None].astype(np.uint8), flat], axis=1)
        (folder / name).write_bytes(content.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(f"class {i}" for i in range(10)) + "\n\n")
    return pixels, labels


def cifar100(folder: Path) -> None:
    folder.mkdir()
    for name, count in (("train.bin", 6), ("test.bin", 3)):
        rows = [bytes([i % 20, 90 + i]) + images(1, 3072).tobytes() for i in range(count)]
        (folder / name).write_bytes(b"".join(rows))
    (folder / "fine_label_names.txt").write_text("\n".join(f"fine {i}" for i in range(100)))


def test_cifar10_reads_records_in_order(data: Path) -> None:
    pixels, labels = cifar10(data / "cifar-10-batches-bin")
    cifar = read("cifar10")
    assert np.array_equal(cifar.train.samples.numpy(), pixels[:20])
    assert np.array_equal(cifar.test.samples.numpy(), pixels[20:])
    assert cifar.train.labels.tolist() == labels[:20].tolist()
    assert cifar.classes[9] == "class 9"
    assert cifar.mean == pytest.approx(pixels[:20].mean(axis=(0, 2, 3)))
    assert cifar.std == pytest.approx(pixels[:20].std(axis=(0, 2, 3)))


def test_cifar100_has_fine_and_coarse_labels(data: Path) -> None:
    cifar100(data / "cifar-100-binary")
    fine, coarse = read("cifar100"), read({"name": "cifar100", "labels": "coarse"})
    assert fine.train.labels.tolist() == [90, 91, 92, 93, 94, 95]
    assert fine.classes[99] == "fine 99"
    assert coarse.train.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert coarse.classes == tuple(map(str, range(20)))
    refused({"name": "cifar100", "labels": "both"}, "labels", "'both'", kind=ConfigError)


def test_cifar_is_unpacked_from_the_archive(data: Path, tmp_path: Path) -> None:
    cifar10(tmp_path / "cifar-10-batches-bin")
    with tarfile.open(data / "cifar-10-binary.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "cifar-10-batches-bin", "cifar-10-batches-bin")
        escape = tarfile.TarInfo("../escape/test_batch.bin.txt")
        tar.addfile(escape, io.BytesIO())
        link = tarfile.TarInfo("elsewhere/test_batch.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    assert len(read("cifar10").train) == 20
    assert not (data / "cifar-10-batches-bin" / "test_batch.bin").is_symlink()
    assert sorted(entry.name for entry in data.iterdir()) == [
        "cifar-10-batches-bin",
        "cifar-10-binary.tar.gz",
    ]
    (data / "cifar-10-batches-bin" / "data_batch_2.bin").unlink()
    assert len(read("cifar10").train) == 20


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b[: len(b) // 2],
        lambda b: b"no archive",
        lambda b: b[:-2000] + bytes([b[-2000] ^ 255]) + b[-1999:],
        lambda b: b[:-8] + bytes(8),
        lambda b: gzip.compress(b"no tar archive"),
    ],
)
def test_a_damaged_archive_is_told(data: Path, tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    cifar10(tmp_path / "cifar-10-batches-bin")
    archive = data / "cifar-10-binary.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "cifar-10-batches-bin", "cifar-10-batches-bin")
    archive.write_bytes(damage(archive.read_bytes()))
    refused("cifar10", archive, "damaged")
    assert list(data.iterdir()) == [archive]


def test_an_archive_of_something_else_is_told(data: Path) -> None:
    with tarfile.open(data / "cifar-100-binary.tar.gz", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("readme.txt"), io.BytesIO())
    refused("cifar100", "cifar-100-binary.tar.gz holds no train.bin")


@pytest.mark.parametrize(
    ("file", "content", "hint"),
    [
        ("data_batch_3.bin", b"x" * 3000, "3000 bytes, and whole records of 3073 bytes are expected"),
        ("test_batch.bin", b"", "0 bytes"),
        ("data_batch_1.bin", bytes([10]) + bytes(3072), "found the label 10, and 0 to 9 are expected"),
        ("batches.meta.txt", b"cat\ndog\n", "2 names of classes, and 10 are expected"),
        ("batches.meta.txt", b"\xff\xfe\xff", "can't be read as text"),
    ],
)
def test_damaged_cifar_files_are_told(data: Path, file: str, content: bytes, hint: str) -> None:
    cifar10(data / "cifar-10-batches-bin")
    (data / "cifar-10-batches-bin" / file).write_bytes(content)
    refused("cifar10", file, hint)


# MNIST and Fashion-MNIST


def header(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}I", *numbers)


def idx(folder: Path, packed: bool = False) -> Any:
    folder.mkdir()
    pixels, labels = images(12, 28, 28), np.arange(12) % 10
    for part, rows in (("train", slice(0, 8)), ("t10k", slice(8, 12))):
        count = len(labels[rows])
        files = {
            f"{part}-images-idx3-ubyte": header(2051, count, 28, 28) + pixels[rows].tobytes(),
            f"{part}-labels-idx1-ubyte": header(2049, count) + bytes(labels[rows].tolist()),
        }
        for name, content in files.items():
            (folder / (f"{name}.gz" if packed else name)).write_bytes(
                gzip.compress(content, mtime=0) if packed else content
            )
    return pixels, labels


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_files_plain_or_gzipped(data: Path, name: str, packed: bool) -> None:
    pixels, labels = idx(data / name, packed)
    mnist = read(name)
    assert mnist.name == name
    assert np.array_equal(mnist.train.samples.numpy()[:, 0], pixels[:8])
    assert np.array_equal(mnist.test.samples.numpy()[:, 0], pixels[8:])
    assert mnist.train.labels.tolist() == labels[:8].tolist()
    assert len(mnist.classes) == 10
    assert mnist.mean[0] == pytest.approx(pixels[:8].mean())


@pytest.mark.parametrize(
    ("file", "content", "hint"),
    [
        ("images-idx3-ubyte", b"abc", "3 bytes, which is less than the header of images"),
        ("images-idx3-ubyte", header(2049, 1, 28, 28), "magic number 2049, and 2051 (images)"),
        (
            "images-idx3-ubyte",
            header(2051, 1, 28, 28) + bytes(9),
            "1 × 28 × 28 bytes of images and has only 9",
        ),
        ("images-idx3-ubyte", header(2051, *[2**32 - 1] * 3) + bytes(9), "has only 9"),
        ("images-idx3-ubyte", header(2051, 1, 1, 1) + bytes(2), "has more"),
        ("images-idx3-ubyte", header(2051, 8, 14, 14) + bytes(8 * 196), "14×14, and 28×28 is expected"),
        ("labels-idx1-ubyte", header(2049, 2) + bytes(2), "8 images and train-labels-idx1-ubyte 2 labels"),
        ("labels-idx1-ubyte", header(2049, 8) + bytes([11] * 8), "found the label 11, and 0 to 9"),
    ],
)
def test_damaged_idx_files_are_told(data: Path, file: str, content: bytes, hint: str) -> None:
    idx(data / "mnist")
    (data / "mnist" / f"train-{file}").write_bytes(content)
    refused("mnist", f"train-{file}", hint)


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b[: len(b) // 2],
        lambda b: b"plain text",
        lambda b: b[:50] + bytes(40) + b[90:],
        lambda b: b[:-8] + bytes(8),
    ],
)
def test_damaged_gzip_files_are_told(data: Path, damage: Callable[[bytes], bytes]) -> None:
    idx(data / "fashion-mnist", packed=True)
    file = data / "fashion-mnist" / "train-images-idx3-ubyte.gz"
    file.write_bytes(damage(file.read_bytes()))
    refused("fashion-mnist", file)


def test_an_empty_idx_set_is_told(data: Path) -> None:
    idx(data / "mnist")
    (data / "mnist" / "train-images-idx3-ubyte").write_bytes(header(2051, 0, 28, 28))
    (data / "mnist" / "train-labels-idx1-ubyte").write_bytes(header(2049, 0))
    refused("mnist", "there are no training samples")


# FEMNIST


def leaf(file: Path, writers: dict[str, list[int]]) -> dict[str, Any]:
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(writers),
        "num_samples": [len(labels) for labels in writers.values()],
        "user_data": {
            writer: {"x": (images(len(labels), 784) / 255).round(4).tolist(), "y": labels}
            for writer, labels in writers.items()
        },
    }
    file.write_text(json.dumps(content))
    return content


def femnist_files(folder: Path) -> dict[str, Any]:
    first = leaf(folder / "train" / "all_data_0.json", {"w2": [0, 61], "w1": [10]})
    leaf(folder / "train" / "all_data_1.json", {"w3": [36, 1, 2]})
    leaf(folder / "test" / "all_data_0.json", {"w1": [5], "w4": [6]})
    return first


def test_femnist_knows_its_writers(data: Path) -> None:
    content = femnist_files(data / "femnist")
    leafs = read("femnist")
    assert leafs.shape == (1, 28, 28)
    assert leafs.owners == ("w1", "w2", "w3", "w4")
    assert leafs.train.labels.tolist() == [0, 61, 10, 36, 1, 2]
    assert leafs.train.owners is not None
    assert leafs.train.owners.tolist() == [1, 1, 0, 2, 2, 2]
    assert leafs.test.owners is not None
    assert leafs.test.owners.tolist() == [0, 3]
    assert [leafs.classes[i] for i in (0, 9, 10, 35, 36, 61)] == ["0", "9", "A", "Z", "a", "z"]
    stored = np.array(content["user_data"]["w2"]["x"])
    assert np.allclose(leafs.train.samples[:2].numpy().reshape(2, 784) / 255, stored, atol=1e-4)


def test_femnist_is_converted_once(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    femnist_files(data / "femnist")
    parsed: list[Path] = []
    parse = femnist._read
    monkeypatch.setattr(femnist, "_read", lambda file: parsed.append(file) or parse(file))
    first = read("femnist")
    assert len(parsed) == 3
    again = read("femnist")
    assert len(parsed) == 3
    assert same(first, again)
    assert again.owners == first.owners
    leaf(data / "femnist" / "train" / "all_data_2.json", {"w0": [7]})
    assert read("femnist").owners[0] == "w0"
    assert len(parsed) == 7
    assert [file.name for file in (data / ".cache").iterdir()] == ["femnist.npz"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b[:100],
        lambda b: b"",
        lambda b: b"no archive",
        lambda b: b[:3000] + bytes([b[3000] ^ 1]) + b[3001:],
    ],
)
def test_a_damaged_conversion_is_made_again(data: Path, damage: Callable[[bytes], bytes]) -> None:
    femnist_files(data / "femnist")
    first = read("femnist")
    cache = data / ".cache" / "femnist.npz"
    whole = cache.read_bytes()
    cache.write_bytes(damage(whole))
    assert same(first, read("femnist"))
    assert len(cache.read_bytes()) == len(whole)


def test_a_data_folder_that_is_read_only_uses_the_users_cache(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    femnist_files(data / "femnist")
    (data / ".cache").write_text("in the way, as a read-only folder would be")
    first = read("femnist")
    assert len(list((tmp_path / "cache" / "converted").iterdir())) == 1
    monkeypatch.setattr(femnist, "_convert", lambda files: pytest.fail("converted again"))
    assert same(first, read("femnist"))


def test_femnist_without_any_cache_still_works(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    femnist_files(data / "femnist")
    (data / ".cache").touch()
    (tmp_path / "cache").touch()
    assert len(read("femnist").train) == 6


def test_femnist_says_how_to_make_the_files(data: Path) -> None:
    refused("femnist", "preprocess.sh -s niid", "github.com/TalwalkarLab/leaf", data / "femnist" / "train")
    leaf(data / "femnist" / "train" / "a.json", {"w": [1]})
    refused("femnist", data / "femnist" / "test")


def test_writers_without_images_are_passed_over(data: Path) -> None:
    femnist_files(data / "femnist")
    leaf(data / "femnist" / "test" / "b.json", {"w9": []})
    leafs = read("femnist")
    assert leafs.owners[-1] == "w9"
    assert len(leafs.test) == 2


def set_x(value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["user_data"]["w1"].update(x=value)


def set_y(value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["user_data"]["w1"].update(y=value)


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        (lambda c: c.pop("users"), "'users' is missing, and a list is expected"),
        (lambda c: c.update(user_data=[]), "'user_data' is a list, and a mapping is expected"),
        (lambda c: c["user_data"].pop("w1"), "'w1' is missing"),
        (lambda c: c["user_data"]["w1"].pop("y"), "writer w1: 'y' is missing"),
        (lambda c: c.update(num_samples=[2]), "2 'users' and 1 'num_samples'"),
        (lambda c: c.update(num_samples=[2, 5]), "1 images and 1 labels, and 5 are announced"),
        (lambda c: c.update(users=[], num_samples=[]), "no 'users'"),
        (set_y([62]), "not whole numbers from 0 to 61"),
        (set_y([1.5]), "not whole numbers from 0 to 61"),
        (set_y([None]), "whole numbers"),
        (set_y([[1]]), "whole numbers"),
        (set_y(["a"]), "labels that are not numbers"),
        (set_x([[0.5] * 783]), "783 pixels, and 784 are expected"),
        (set_x([[0.5] * 784, [1.0]]), "not lists of equally many numbers"),
        (set_x([["a"] * 784]), "not lists of equally many numbers"),
        (set_x([[255] * 784]), "pixels outside 0 to 1"),
        (set_x([[float("nan")] * 784]), "pixels outside 0 to 1"),
    ],
)
def test_damaged_femnist_files_are_told(
    data: Path, change: Callable[[dict[str, Any]], Any], hint: str
) -> None:
    content = femnist_files(data / "femnist")
    change(content)
    file = data / "femnist" / "train" / "all_data_0.json"
    file.write_text(json.dumps(content))
    refused("femnist", file, hint)
    assert not (data / ".cache").exists()


@pytest.mark.parametrize("content", [b'{"users": [', b"\xff\xfe", b"[" * 100_000, b""])
def test_femnist_files_that_are_not_json_are_told(data: Path, content: bytes) -> None:
    femnist_files(data / "femnist")
    file = data / "femnist" / "test" / "all_data_0.json"
    file.write_bytes(content)
    refused("femnist", file, "is not JSON")


def test_a_json_file_that_is_a_list_is_told(data: Path) -> None:
    femnist_files(data / "femnist")
    (data / "femnist" / "test" / "all_data_0.json").write_text("[1]")
    refused("femnist", "'users' is missing")


# npz


def npz(path: Path, **arrays: Any) -> dict[str, Any]:
    np.savez(path, **arrays)
    return {"name": "npz", "path": str(path)}


@pytest.mark.parametrize(
    ("shape", "layout", "expected"),
    [
        ((5, 7), "auto", (1, 5, 7)),
        ((5, 7, 3), "auto", (3, 5, 7)),
        ((3, 5, 7), "auto", (3, 5, 7)),
        ((1, 5, 7), "auto", (1, 5, 7)),
        ((5, 7, 4), "auto", (4, 5, 7)),
        ((3, 5, 3), "nchw", (3, 5, 3)),
        ((3, 5, 3), "nhwc", (3, 3, 5)),
        ((2, 5, 7), "nchw", (2, 5, 7)),
    ],
)
def test_npz_images_of_any_layout(
    tmp_path: Path, shape: tuple[int, ...], layout: str, expected: tuple[int, ...]
) -> None:
    pixels = images(10, *shape)
    spec = npz(
        tmp_path / "a.npz", x_train=pixels, y_train=np.arange(10) % 2, x_test=pixels[:2], y_test=[0, 1]
    )
    found = read({**spec, "layout": layout})
    assert found.name == "a"
    assert found.shape == expected
    assert found.train.samples.dtype == torch.uint8
    moved = pixels if pixels.ndim == 3 or expected == shape else np.moveaxis(pixels, 3, 1)
    assert np.array_equal(found.train.samples.numpy().reshape(moved.shape), moved)


@pytest.mark.parametrize(("shape", "hint"), [((3, 5, 3), "both"), ((2, 5, 7), "neither")])
def test_npz_images_whose_channels_are_not_clear(tmp_path: Path, shape: tuple[int, ...], hint: str) -> None:
    spec = npz(tmp_path / "a.npz", x=images(10, *shape), y=np.arange(10) % 2)
    refused(spec, "a.npz", hint, "set 'layout' to nchw or nhwc")


@pytest.mark.parametrize(
    ("dtype", "shape", "expected"),
    [
        (np.float64, (6,), torch.float32),
        (np.int32, (6,), torch.float32),
        (np.uint8, (6,), torch.float32),
        (np.float32, (3, 4, 4), torch.float32),
        (np.float16, (4, 4), torch.float32),
        (np.int64, (4, 4), torch.uint8),
        (np.bool_, (4, 4), torch.uint8),
    ],
)
def test_npz_number_types(tmp_path: Path, dtype: Any, shape: tuple[int, ...], expected: torch.dtype) -> None:
    values = images(10, *shape).astype(dtype)
    found = read({**npz(tmp_path / "a.npz", x=values, y=np.arange(10) % 2), "layout": "nchw"})
    assert found.train.samples.dtype == expected


def test_npz_integers_beyond_a_byte_become_floats(tmp_path: Path) -> None:
    values = np.full((10, 4, 4), 4000, dtype=np.uint16)
    found = read(npz(tmp_path / "a.npz", x=values, y=np.arange(10) % 2))
    assert found.train.samples.dtype == torch.float32
    assert (found.mean, found.std) == ((4000.0,), (1.0,))


def test_npz_splits_a_test_part_off(tmp_path: Path) -> None:
    labels = np.repeat([0, 1, 2], [50, 30, 20])
    spec = npz(tmp_path / "a.npz", x=np.arange(200.0).reshape(100, 2), y=labels, owners=np.arange(100) // 10)
    found = read({**spec, "test": 0.3})
    assert found.test.labels.bincount().tolist() == [15, 9, 6]
    rows = torch.cat([found.train.samples, found.test.samples])[:, 0]
    assert sorted(rows.tolist()) == list(range(0, 200, 2))
    assert found.train.owners is not None
    assert torch.equal(found.train.owners, found.train.samples[:, 0].long() // 20)
    assert found.owners == tuple(map(str, range(10)))


@pytest.mark.parametrize(
    ("labels", "classes", "names", "indices"),
    [
        ([7, 3, 7, 10], None, ("3", "7", "10"), [1, 0, 1, 2]),
        ([-1, 1, 1, -1], None, ("-1", "1"), [0, 1, 1, 0]),
        ([1.0, 0.0, 2.0, 1.0], None, ("0", "1", "2"), [1, 0, 2, 1]),
        ([[1], [0], [2], [1]], None, ("0", "1", "2"), [1, 0, 2, 1]),
        ([True, False, True, True], None, ("0", "1"), [1, 0, 1, 1]),
        (["cat", "ant", "cat", "bee"], None, ("ant", "bee", "cat"), [2, 0, 2, 1]),
        ([b"cat", b"ant", b"cat", b"bee"], None, ("ant", "bee", "cat"), [2, 0, 2, 1]),
        ([0, 2, 0, 2], ["a", "b", "c"], ("a", "b", "c"), [0, 2, 0, 2]),
        (["b", "a", "b", "b"], ["b", "c", "a"], ("b", "c", "a"), [0, 2, 0, 0]),
        ([0, 1, 1, 0], [10, 20], ("10", "20"), [0, 1, 1, 0]),
    ],
)
def test_npz_labels_become_classes(
    tmp_path: Path, labels: list[Any], classes: Any, names: tuple[str, ...], indices: list[int]
) -> None:
    path = write_npz(tmp_path / "a.npz", (np.eye(4), labels), (np.eye(4), labels), classes=classes)
    found = read({"name": "npz", "path": str(path)})
    assert found.classes == names
    assert found.train.labels.tolist() == found.test.labels.tolist() == indices
    assert found.train.labels.dtype == torch.int64


def test_npz_classes_count_over_both_parts(tmp_path: Path) -> None:
    spec = npz(tmp_path / "a.npz", x_train=np.eye(2), y_train=[1, 5], x_test=np.eye(2), y_test=[3, 5])
    found = read(spec)
    assert found.classes == ("1", "3", "5")
    assert found.test.labels.tolist() == [1, 2]


def test_write_npz_keeps_owners(tmp_path: Path) -> None:
    path = write_npz(
        str(tmp_path / "new" / "a.npz"), (np.eye(3), [0, 1, 1]), (np.eye(3), [0, 1, 1]), ["b", "a", "b"]
    )
    assert [file.name for file in path.parent.iterdir()] == ["a.npz"]
    found = read({"name": "npz", "path": str(path)})
    assert found.owners == ("a", "b")
    assert found.train.owners is not None
    assert found.train.owners.tolist() == [1, 0, 1]
    assert found.test.owners is None


def test_write_npz_refuses_objects(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'x_train' holds Python objects"):
        write_npz(tmp_path / "a.npz", (np.array([{}]), [0]))
    with pytest.raises(DataError, match="can't be written"):
        write_npz(tmp_path, (np.eye(2), [0, 1]))
    assert not list(tmp_path.glob("*a.npz*"))


X, Y = np.eye(4), [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("arrays", "hint"),
    [
        ({"a": X}, "no array 'x'; found a, expected x_train and y_train"),
        ({"x_train": X}, "no array 'y_train'"),
        ({"x": X, "y": Y, "x_test": X}, "no array 'y_test'"),
        ({"x": X, "y": [0, 1]}, "the training part has 4 samples and 2 labels"),
        ({"x": X, "y": Y, "owners": [1]}, "the training part has 4 samples and 1 owners"),
        ({"x": X, "y": 3}, "a single value for the labels"),
        ({"x": X, "y": np.eye(4)}, "labels have the shape (4, 4), and one label a sample is expected"),
        ({"x": X, "y": Y, "owners": np.eye(4, dtype=int)}, "owners have the shape (4, 4)"),
        ({"x": X, "y": [0.5, 1, 0, 1]}, "labels are not whole numbers"),
        ({"x": X, "y": [np.nan, 1, 0, 1]}, "labels are not whole numbers"),
        ({"x": X, "y": [1e300, 1, 0, 1]}, "labels are not whole numbers"),
        ({"x": X, "y": [1j, 1, 0, 1]}, "labels are of type complex128"),
        ({"x": X, "y": [b"\xff"] * 4}, "labels are bytes that are not UTF-8 text"),
        ({"x": X, "y": Y, "owners": X[0]}, "owners are of type float64"),
        ({"x": X * 1j, "y": Y}, "samples are of type complex128"),
        ({"x": ["a"] * 4, "y": Y}, "samples are of type"),
        ({"x": X[0], "y": Y}, "samples have the shape (4,)"),
        ({"x": np.zeros((4, 1, 1, 1, 1)), "y": Y}, "samples have the shape (4, 1, 1, 1, 1)"),
        ({"x": np.zeros((4, 0)), "y": Y}, "holds no values"),
        ({"x": X * np.nan, "y": Y}, "not finite"),
        ({"x": X * 1e300, "y": Y}, "not finite"),
        ({"x": X[:0], "y": []}, "there are no training samples"),
        ({"x": X[:1], "y": [0]}, "too few to split off a test part of 0.2"),
        ({"x": X, "y": Y, "classes": ["a"]}, "label 1 is out of range, and 0 to 0 are expected"),
        ({"x": X, "y": [-1, 1, 0, 1], "classes": ["a", "b"]}, "label -1 is out of range"),
        ({"x": X, "y": ["a"] * 4, "classes": ["b"]}, "label 'a' is none of the 1 classes"),
        ({"x": X, "y": Y, "classes": ["a", "a"]}, "names are not all different"),
        ({"x": X, "y": Y, "classes": "ab"}, "a list of names is expected"),
        ({"x": X, "y": Y, "classes": [0.5]}, "classes are of type float64"),
        ({"x": X, "y": Y, "x_test": X[:, :2], "y_test": Y}, "shape (4,) and test samples (2,)"),
        ({"x": X, "y": Y, "x_test": X.astype(int), "y_test": Y}, "both need the same units"),
        ({"x": X, "y": Y, "x_test": X, "y_test": ["a"] * 4}, "numbers in one part and text in the other"),
    ],
)
def test_npz_arrays_that_make_no_sense_are_told(tmp_path: Path, arrays: dict[str, Any], hint: str) -> None:
    refused(npz(tmp_path / "a.npz", **arrays), tmp_path / "a.npz", hint)


class Bomb:
    """Unpickling it would create a file."""

    target = ""

    def __reduce__(self) -> Any:
        return (Path.touch, (Path(self.target),))


def test_npz_never_unpickles(tmp_path: Path) -> None:
    bomb = Bomb()
    bomb.target = str(tmp_path / "exploded")
    objects = np.array([bomb], dtype=object)
    refused(npz(tmp_path / "a.npz", x=objects, y=[0]), "'x' holds Python objects")
    np.save(tmp_path / "b.npy", objects)
    refused({"name": "npz", "path": str(tmp_path / "b.npy")}, "b.npy is not an npz file")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("damage", "hint"),
    [
        (lambda b: b"", "a.npz"),
        (lambda b: b"some text", "is not an npz file"),
        (lambda b: b[: len(b) // 2], "damaged"),
        (lambda b: b[:200] + bytes([b[200] ^ 255]) + b[201:], "damaged"),
    ],
)
def test_damaged_npz_files_are_told(tmp_path: Path, damage: Callable[[bytes], bytes], hint: str) -> None:
    spec = npz(tmp_path / "a.npz", x=X, y=Y)
    content = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(damage(content))
    refused(spec, tmp_path / "a.npz", hint)


def test_a_single_array_or_a_folder_is_no_npz_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    refused({"name": "npz", "path": str(tmp_path / "a.npy")}, "holds a single array")
    refused({"name": "npz", "path": str(tmp_path)}, "can't be read")


def test_an_array_that_is_not_numpys_is_told(tmp_path: Path) -> None:
    spec = {"name": "npz", "path": str(tmp_path / "a.npz")}
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x", b"text")
    refused(spec, "'x' is not an array")
    stream = io.BytesIO()
    np.save(stream, X)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", stream.getvalue().replace(b"(4, 4), }", b"(4, x), }"))
    refused(spec, "'x' holds no array that numpy can read")


# Image folders


def png(path: Path, pixels: Any, mode: str | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).convert(mode).save(path) if mode else Image.fromarray(pixels).save(path)


def test_an_image_folder_with_both_parts(tmp_path: Path) -> None:
    pixels = images(6, 4, 5, 3)
    root = tmp_path / "pets"
    for i in range(4):
        png(root / "train" / ("cat" if i % 2 else "ant") / f"{i}.PNG", pixels[i])
    png(root / "test" / "cat" / "deep" / "a.bmp", pixels[4])
    png(root / "test" / "ant" / "a.png", pixels[5])
    (root / "train" / "cat" / "notes.txt").write_text("not an image")
    (root / "train" / ".hidden").mkdir()
    (root / "train" / "empty").mkdir()
    found = read({"name": "folder", "path": str(root)})
    assert (found.name, found.classes, found.shape) == ("pets", ("ant", "cat"), (3, 4, 5))
    assert found.train.labels.tolist() == [0, 0, 1, 1]
    assert found.test.labels.tolist() == [0, 1]
    assert np.array_equal(found.train.samples.numpy(), pixels[[0, 2, 1, 3]].transpose(0, 3, 1, 2))


def test_an_image_folder_without_a_test_part(tmp_path: Path) -> None:
    for i in range(20):
        png(tmp_path / str(9 + i % 2) / f"{i}.jpg", images(1, 8, 8)[0])
    found = read({"name": "folder", "path": str(tmp_path), "channels": 1, "size": 6, "test": 0.5})
    assert found.classes == ("9", "10")
    assert found.shape == (1, 6, 6)
    assert (len(found.train), len(found.test)) == (10, 10)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK"])
def test_images_of_any_mode_are_converted(tmp_path: Path, mode: str) -> None:
    for i in range(5):
        png(tmp_path / "a" / f"{i}.tiff", images(1, 4, 4, 3)[0], mode)
    assert read({"name": "folder", "path": str(tmp_path)}).shape == (3, 4, 4)


def test_transparent_palettes_do_not_warn(tmp_path: Path) -> None:
    for i in range(5):
        (tmp_path / "a").mkdir(exist_ok=True)
        palette = Image.fromarray(images(1, 4, 4, 3)[0]).convert("P")
        palette.save(tmp_path / "a" / f"{i}.png", transparency=bytes(range(256)))
    assert read({"name": "folder", "path": str(tmp_path)}).shape == (3, 4, 4)


def test_image_folders_that_make_no_sense_are_told(tmp_path: Path) -> None:
    spec = {"name": "folder", "path": str(tmp_path)}
    refused(spec, tmp_path, "no images")
    png(tmp_path / "a" / "1.png", images(1, 4, 4)[0])
    refused({**spec, "channels": 2}, "channels", kind=ConfigError)
    refused(spec, "too few")
    png(tmp_path / "a" / "2.png", images(1, 4, 5)[0])
    refused(spec, tmp_path / "a" / "2.png", "4×5 with 3 channels", "4×4", "set 'size'")
    whole = (tmp_path / "a" / "2.png").read_bytes()
    (tmp_path / "a" / "2.png").write_bytes(whole[:60])
    refused(spec, tmp_path / "a" / "2.png", "can't be read as an image")
    (tmp_path / "a" / "2.png").write_bytes(b"text")
    refused(spec, tmp_path / "a" / "2.png", "its format is not known")
    png(tmp_path / "a" / "2.png", images(1, 4, 4).astype(np.uint16)[0])
    refused(spec, tmp_path / "a" / "2.png", "8 bits a channel are expected")
    (tmp_path / "test").mkdir()
    refused(spec, "'test' and no folder 'train'")


# Parquet


def encode(pixels: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def table(pixels: Any, labels: Any, **more: Any) -> pa.Table:
    encoded = [{"bytes": encode(image), "path": None} for image in pixels]
    return pa.table({"image": encoded, "label": labels, **more})


def put(path: Path, content: pa.Table, **options: Any) -> dict[str, Any]:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(content, path, **options)
    return {"name": "parquet", "path": str(path)}


def test_a_parquet_folder_with_both_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_ROWS", 3)
    pixels = images(14, 4, 4, 3)
    put(tmp_path / "data" / "train-0.parquet", table(pixels[:8], [0, 1] * 4), row_group_size=5)
    put(tmp_path / "data" / "train-1.parquet", table(pixels[8:12], [2] * 4))
    put(tmp_path / "data" / "test-0.parquet", table(pixels[12:], [0, 1]))
    put(tmp_path / "data" / "validation-0.parquet", table(pixels[12:], [7, 7]))
    found = read({"name": "parquet", "path": str(tmp_path)})
    assert np.array_equal(found.train.samples.numpy(), pixels[:12].transpose(0, 3, 1, 2))
    assert found.train.labels.tolist() == [0, 1] * 4 + [2] * 4
    assert found.classes == ("0", "1", "2")
    assert len(found.test) == 2


def test_a_parquet_file_with_other_columns(tmp_path: Path) -> None:
    content = pa.table({
        "pic": pa.array([encode(image) for image in images(20, 4, 4)], pa.large_binary()),
        "kind": pa.array(["x", "y"] * 10).dictionary_encode(),
        "site": pa.array([3, 3, 5, 5] * 5, pa.int16()),
        "other": pa.array([None] * 20),
    })  # fmt: skip
    spec = put(tmp_path / "own.parquet", content)
    found = read({**spec, "image": "pic", "label": "kind", "owner": "site"})
    assert (found.name, found.shape, found.classes, found.owners) == (
        "own",
        (1, 4, 4),
        ("x", "y"),
        ("3", "5"),
    )
    assert (len(found.train), len(found.test)) == (16, 4)
    assert read({**spec, "image": "pic", "label": "kind", "channels": 3, "size": 3}).shape == (3, 3, 3)
    assert read({**spec, "image": "pic", "label": "kind", "owner": "kind"}).owners == ("x", "y")


@pytest.mark.parametrize(
    ("kind", "shape", "expected", "dtype"),
    [
        (pa.list_(pa.float64()), (6,), (6,), torch.float32),
        (pa.list_(pa.float32(), 6), (6,), (6,), torch.float32),
        (pa.large_list(pa.list_(pa.uint8())), (5, 6), (1, 5, 6), torch.uint8),
        (pa.list_(pa.list_(pa.list_(pa.uint8(), 3))), (5, 6, 3), (3, 5, 6), torch.uint8),
    ],
)
def test_lists_of_numbers_are_features_or_images(
    tmp_path: Path, kind: Any, shape: tuple[int, ...], expected: tuple[int, ...], dtype: torch.dtype
) -> None:
    values = images(10, *shape)
    spec = put(
        tmp_path / "a.parquet", pa.table({"image": pa.array(values.tolist(), kind), "label": [0, 1] * 5})
    )
    found = read(spec)
    assert (found.shape, found.train.samples.dtype) == (expected, dtype)
    total = torch.cat([found.train.samples, found.test.samples]).double().sum().item()
    assert total == values.astype(np.float64).sum()


def test_names_of_classes_come_from_the_schema(tmp_path: Path) -> None:
    info = {"info": {"features": {"label": {"names": ["cat", "dog", "owl"], "_type": "ClassLabel"}}}}
    content = table(images(10, 4, 4), [0, 1] * 5)
    spec = put(tmp_path / "a.parquet", content.replace_schema_metadata({"huggingface": json.dumps(info)}))
    assert read(spec).classes == ("cat", "dog", "owl")
    spec = put(tmp_path / "b.parquet", content.replace_schema_metadata({"huggingface": "no JSON"}))
    assert read(spec).classes == ("0", "1")


PIXELS, COLOUR = images(4, 4, 4), images(4, 4, 3)


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (pa.table({"picture": [1]}), "no column 'label'; found picture"),
        (pa.table({"image": [1.5], "label": [1]}), "images of type double, and bytes or lists"),
        (table(PIXELS, [0, 1, None, 1]), "column 'label' has 1 missing values"),
        (table(PIXELS, [[0], [1], [0], [1]]), "column 'label' is of type list"),
        (table(PIXELS, [0.5, 1, 0, 1]), "labels are not whole numbers"),
        (pa.table({"image": [b"text"], "label": [1]}), "row 0 can't be read as an image"),
        (pa.table({"image": [None, b""], "label": [1, 1]}), "column 'image' has 1 missing values"),
        (pa.table({"image": [{"bytes": None, "path": "a.png"}], "label": [1]}), "by path only"),
        (pa.table({"image": [{"path": "a.png"}], "label": [1]}), "images of type struct"),
        (pa.table({"image": [[1, 2], [1]], "label": [1, 2]}), "lists of different lengths"),
        (pa.table({"image": [[1, None], [1, 2]], "label": [1, 2]}), "missing values"),
        (pa.table({"image": [["a"], ["b"]], "label": [1, 2]}), "lists of string"),
        (table(PIXELS, [0] * 4).slice(0, 0), "there are no rows"),
        (pa.table({"image": [encode(PIXELS[0]), encode(COLOUR)], "label": [1, 2]}), "set 'channels'"),
    ],
)
def test_parquet_columns_that_make_no_sense_are_told(tmp_path: Path, content: pa.Table, hint: str) -> None:
    refused(put(tmp_path / "a.parquet", content), "a.parquet", hint)


@pytest.mark.parametrize(
    "damage", [lambda b: b"PAR1", lambda b: b[: len(b) // 2], lambda b: b[:40] + b"x" * 40 + b[80:]]
)
def test_damaged_parquet_files_are_told(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    spec = put(tmp_path / "a.parquet", table(PIXELS, [0, 1, 0, 1]))
    file = tmp_path / "a.parquet"
    file.write_bytes(damage(file.read_bytes()))
    refused(spec, file, "can't be read")


def test_parquet_folders_that_make_no_sense_are_told(tmp_path: Path) -> None:
    refused({"name": "parquet", "path": str(tmp_path)}, "no Parquet files")
    put(tmp_path / "test.parquet", table(PIXELS, [0, 1, 0, 1]))
    refused({"name": "parquet", "path": str(tmp_path)}, "test files", "train*.parquet")
    put(tmp_path / "train-0.parquet", pa.table({"image": [[1, 2]], "label": [0]}))
    put(tmp_path / "train-1.parquet", pa.table({"image": [[1, 2, 3]], "label": [0]}))
    refused({"name": "parquet", "path": str(tmp_path)}, "changes its shape or type")


@pytest.mark.parametrize("spec", [{"name": "parquet", "path": "a"}, {"name": "huggingface", "path": "a"}])
def test_a_missing_pyarrow_is_told(monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any]) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused(spec, "extra 'parquet'", kind=ConfigError)


# Hugging Face


def save_split(folder: Path, shards: list[pa.Table]) -> None:
    """A split as `datasets.save_to_disk` lays it out."""
    folder.mkdir(parents=True)
    names = [f"data-{i:05}-of-{len(shards):05}.arrow" for i in range(len(shards))]
    for name, shard in zip(names, shards, strict=True):
        with pa.ipc.new_stream(folder / name, shard.schema) as stream:
            stream.write_table(shard, max_chunksize=3)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "0", "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")


def save_dict(folder: Path) -> Any:
    pixels = images(14, 4, 4, 3)
    info = {"info": {"features": {"label": {"names": ["a", "b"], "_type": "ClassLabel"}}}}
    whole = table(pixels, [0, 1] * 7, who=["w1", "w2"] * 7)
    whole = whole.replace_schema_metadata({"huggingface": json.dumps(info)})
    save_split(folder / "train", [whole.slice(0, 7), whole.slice(7, 3)])
    save_split(folder / "test", [whole.slice(10)])
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    return pixels


def test_a_folder_saved_by_datasets(tmp_path: Path) -> None:
    pixels = save_dict(tmp_path / "saved")
    spec = {"name": "huggingface", "path": str(tmp_path / "saved")}
    found = read({**spec, "owner": "who"})
    assert (found.name, found.classes, found.owners) == ("saved", ("a", "b"), ("w1", "w2"))
    assert np.array_equal(found.train.samples.numpy(), pixels[:10].transpose(0, 3, 1, 2))
    assert np.array_equal(found.test.samples.numpy(), pixels[10:].transpose(0, 3, 1, 2))
    assert found.train.labels.tolist() == [0, 1] * 5
    assert len(read({**spec, "test_split": None}).test) == 2
    assert len(read({**spec, "path": str(tmp_path / "saved" / "train")}).test) == 2
    assert len(read({**spec, "train_split": "test", "test_split": "train"}).test) == 10


def test_saved_folders_that_make_no_sense_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    spec = {"name": "huggingface", "path": str(folder)}
    refused(spec, folder, "neither dataset_dict.json nor state.json")
    save_dict(folder)
    refused({**spec, "test_split": "val"}, "no split 'val'; allowed: test, train")
    refused({**spec, "image": "img"}, "no column 'img'; found image, label, who")
    shard = folder / "train" / "data-00001-of-00002.arrow"
    whole = shard.read_bytes()
    for content in (b"", whole[:100], whole[: len(whole) // 2], b"some text that is no Arrow stream at all"):
        shard.write_bytes(content)
        refused(spec, shard, "can't be read as an Arrow stream")
    shard.unlink()
    refused(spec, shard)
    state = folder / "train" / "state.json"
    state.write_text('{"_data_files": []}')
    refused(spec, state, "lists no files")
    state.write_text('{"_indices_data_files": [{"filename": "i.arrow"}]}')
    refused(spec, folder / "train", "selection of rows")
    state.write_text("{")
    refused(spec, state, "is not JSON")
    state.unlink()
    refused(spec, state, "can't be read")
    (folder / "dataset_dict.json").write_text("[]")
    refused(spec, "dataset_dict.json holds a list")


def test_either_a_folder_or_a_name_on_the_hub() -> None:
    for options in ({}, {"path": "a", "repo": "b"}):
        refused({"name": "huggingface", **options}, "either 'path'", kind=ConfigError)


class Rows:
    """As much of `datasets.Dataset` as is used."""

    def __init__(self, content: pa.Table) -> None:
        self.content = content
        self.column_names = content.column_names

    def select_columns(self, names: list[str]) -> Rows:
        return Rows(self.content.select(names))

    def with_format(self, kind: str) -> Rows:
        assert kind == "arrow"
        return self

    def iter(self, size: int) -> Any:
        return iter([self.content.slice(0, 3), self.content.slice(3)])


def test_a_name_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = {"name": "huggingface", "repo": "someone/things", "subset": "small", "revision": "abc"}
    refused(spec, "someone/things", "MNEMOS_OFFLINE", "'path'")
    monkeypatch.delenv("MNEMOS_OFFLINE")
    monkeypatch.setitem(sys.modules, "datasets", None)
    refused(spec, "pip install datasets", kind=ConfigError)

    def load_dataset(repo: str, name: str, *, split: str, revision: str) -> Rows:
        assert (repo, name, revision) == ("someone/things", "small", "abc")
        if split not in {"train", "test"}:
            raise ValueError(f'Unknown split "{split}".\nMore lines.')
        return Rows(table(images(8, 4, 4), [0, 1] * 4))

    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    found = read(spec)
    assert (found.name, len(found.train), len(found.test)) == ("someone/things", 8, 8)
    assert len(read({**spec, "test_split": None}).test) == 1
    refused({**spec, "test_split": "val"}, "can't be loaded from the hub", 'Unknown split "val"')
    refused({**spec, "label": "kind"}, "no column 'kind'")


# Helpers


@given(st.lists(st.integers(0, 4), min_size=1, max_size=80), st.floats(0.05, 0.95))
def test_a_test_part_is_even_and_always_the_same(labels: list[int], share: float) -> None:
    count = len(labels)
    whole = Split(torch.arange(count).reshape(-1, 1), torch.tensor(labels))
    try:
        train, test = split_off(whole, share, "x")
    except DataError:
        assert int(count * share + 1e-9) <= len(set(labels))  # no class is tested on only
        return
    assert sorted(torch.cat([train.samples, test.samples]).flatten().tolist()) == list(range(count))
    assert set(train.labels.tolist()) == set(labels)
    for label in set(labels):
        wanted = share * labels.count(label)
        assert abs(test.labels.tolist().count(label) - wanted) < 1.001
    assert torch.equal(split_off(whole, share, "x")[1].samples, test.samples)


@pytest.mark.parametrize("shape", [(7, 3, 4, 5), (9, 1, 2, 2)])
def test_mean_and_deviation_of_bytes_are_exact(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]
) -> None:
    monkeypatch.setattr(_scale, "_CHUNK", 64)
    values = images(*shape)
    mean, std = mean_std(torch.from_numpy(values))
    assert mean == pytest.approx(values.mean(axis=(0, 2, 3)), rel=1e-12)
    assert std == pytest.approx(values.std(axis=(0, 2, 3)), rel=1e-12)


@pytest.mark.parametrize("shape", [(50, 3, 4, 5), (50, 6)])
def test_mean_and_deviation_of_floats(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    monkeypatch.setattr(_scale, "_CHUNK", 64)
    values = (RNG.normal(size=shape) + 1e4).astype(np.float32)
    axes = (0, *range(2, len(shape)))
    mean, std = mean_std(torch.from_numpy(values))
    assert mean == pytest.approx(values.mean(axis=axes, dtype=np.float64), rel=1e-12)
    assert std == pytest.approx(values.std(axis=axes, dtype=np.float64), rel=1e-9)


@pytest.mark.parametrize("value", [0.0, 0.1, 1234.5678, 1e30])
def test_a_constant_channel_has_a_deviation_of_one(value: float) -> None:
    assert mean_std(torch.full((1000, 2, 3, 3), value))[1] == (1.0, 1.0)
    assert mean_std(torch.full((10, 2, 3, 3), 7, dtype=torch.uint8)) == ((7.0, 7.0), (1.0, 1.0))


# Data sets in memory


def small(path: Path, labels: list[int]) -> Source:
    write_npz(path, (np.eye(len(labels)), labels), (np.eye(len(labels)), labels))
    return sources.parse({"name": "npz", "path": str(path)})


def test_a_data_set_is_loaded_once(tmp_path: Path) -> None:
    one = small(tmp_path / "1.npz", [0, 1])
    first = load(one)
    assert load(one) is first
    assert load(sources.parse(one.dump())) is first
    assert load(sources.parse({**one.dump(), "test": 0.5})) is not first


def test_a_changed_file_is_loaded_again(tmp_path: Path) -> None:
    source = small(tmp_path / "1.npz", [0, 1])
    assert len(load(source).train) == 2
    small(tmp_path / "1.npz", [0, 1, 1])
    assert len(load(source).train) == 3


def test_two_data_sets_are_kept(tmp_path: Path) -> None:
    parts = [small(tmp_path / f"{i}.npz", [0, 1]) for i in range(3)]
    first, second = load(parts[0]), load(parts[1])
    assert load(parts[0]) is first
    third = load(parts[2])
    assert load(parts[0]) is first
    assert load(parts[1]) is not second
    assert load(parts[2]) is not third


def test_another_data_folder_is_another_data_set(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idx(data / "mnist")
    source = sources.parse("mnist")
    first = load(source)
    monkeypatch.setenv("MNEMOS_DATA", str(tmp_path / "other"))
    (tmp_path / "other").mkdir()
    idx(tmp_path / "other" / "mnist")
    assert not same(first, load(source))


def test_threads_share_one_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = small(tmp_path / "1.npz", [0, 1])
    calls: list[int] = []
    original = type(source).load

    def counted(self: Source) -> Dataset:
        calls.append(1)
        return original(self)  # type: ignore[arg-type]

    monkeypatch.setattr(type(source), "load", counted)
    found: list[Dataset] = []
    threads = [threading.Thread(target=lambda: found.append(load(source))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert all(one is found[0] for one in found)


def test_a_source_that_cannot_be_compared_is_not_kept() -> None:
    class Odd(Source):
        values: list[int]

        def load(self) -> Dataset:
            split = Split(torch.eye(2), torch.arange(2))
            return Dataset("odd", split, split, ("a", "b"), (0.0,), (1.0,))

    odd = Odd(values=[1])
    assert load(odd) is not load(odd)


def test_a_failure_is_not_kept(tmp_path: Path) -> None:
    source = sources.parse({"name": "npz", "path": str(tmp_path / "1.npz")})
    with pytest.raises(DataError):
        load(source)
    small(tmp_path / "1.npz", [0, 1])
    assert len(load(source).train) == 2


@pytest.mark.parametrize(
    ("spec", "title"),
    [
        ("digits", "digits"),
        ({"name": "npz", "path": "own/scans of 2024.npz"}, "scans of 2024"),
        ({"name": "folder", "path": "photos/"}, "photos"),
        ({"name": "huggingface", "repo": "somewhere/reviews"}, "reviews"),
    ],
)
def test_own_data_has_its_own_name(spec: str | dict[str, Any], title: str):
    assert sources.parse(spec).title == title


def csv_file(folder: Path, text: str, name: str = "own.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_csv_with_ordinary_columns(tmp_path: Path):
    rows = "\n".join(f'{i / 2},"{i % 3}",{"ab"[i % 2]},site {i // 10}' for i in range(20))
    path = csv_file(tmp_path, f"age,dose,outcome,site\n{rows}\n")
    dataset = read({"name": "csv", "path": str(path), "label": "outcome", "owner": "site"})
    assert (dataset.name, dataset.classes, dataset.owners) == ("own", ("a", "b"), ("site 0", "site 1"))
    assert (len(dataset.train), len(dataset.test), dataset.shape) == (16, 4, (2,))
    assert torch.equal(dataset.train.labels, (dataset.train.samples[:, 0] * 2 % 2).long())
    assert torch.equal(dataset.train.owners, (dataset.train.samples[:, 0] * 2 // 10).long())
    some = read({"name": "csv", "path": str(path), "label": "outcome", "features": ["dose"]})
    assert some.shape == (1,)


def test_csv_in_parts_with_tabs_and_numbered_classes(tmp_path: Path):
    csv_file(tmp_path, "x\tlabel\n1\t10\n2\t9\n", "train.tsv")
    csv_file(tmp_path, "x\tlabel\n3\t9\n", "test.tsv")
    dataset = read({"name": "csv", "path": str(tmp_path)})
    assert dataset.classes == ("9", "10")
    assert dataset.train.labels.tolist() == [1, 0]
    assert dataset.test.samples.tolist() == [[3]]


def test_csv_names_images_by_path(tmp_path: Path):
    for shade in range(10):
        Image.new("L", (3, 2), shade).save(tmp_path / f"{shade}.png")
    rows = "\n".join(f"{i}.png,{i % 2}" for i in range(10))
    path = csv_file(tmp_path, f"file,label\n{rows}\n")
    dataset = read({"name": "csv", "path": str(path), "image": "file"})
    assert dataset.shape == (1, 2, 3)
    assert torch.equal(dataset.train.labels, dataset.train.samples[:, 0, 0, 0] % 2)
    csv_file(tmp_path, "file,label\n0.png,0\nnone.png,1\n")
    refused(
        {"name": "csv", "path": str(path), "image": "file"}, "own.csv, line 3", "none.png", "doesn't exist"
    )


@pytest.mark.parametrize(
    ("text", "hints"),
    [
        ("", ["own.csv is empty", "header"]),
        ("x,label\n", ["own.csv has no rows"]),
        ("x,y\n1,2\n", ["own.csv has no column 'label'; found x, y", "as in data.label=COLUMN"]),
        ("label\n1\n", ["no columns of features"]),
        ("x,x,label\n1,2,3\n", ["several columns 'x'"]),
        ("x,label\n1,2\n1\n", ["own.csv, line 3: found 1 cells, and the header has 2"]),
        (
            "x,label\n1,2\n\nRome,2\n",
            ["own.csv, line 4: column 'x' has 'Rome', and a number", "data.features"],
        ),
        ("x,label\n1,2\n,2\n", ["own.csv, line 3: column 'x' is empty"]),
        ("x,label\n1,2\n3,\n", ["own.csv, line 3: column 'label' is empty"]),
        ("x,label\n1,2\nnan,2\n", ["own.csv, line 3: column 'x' has nan, and a finite number"]),
        ('x,label\n"1,2\n', ["own.csv can't be read"]),
    ],
)
def test_csv_that_makes_no_sense_is_told(tmp_path: Path, text: str, hints: list[str]):
    refused({"name": "csv", "path": str(csv_file(tmp_path, text))}, *hints)


def test_csv_that_is_no_text(tmp_path: Path):
    path = tmp_path / "own.csv"
    path.write_bytes(b"x,label\n\xff,1\n")
    refused({"name": "csv", "path": str(path)}, "own.csv is not UTF-8 text")
    refused({"name": "csv", "path": str(tmp_path / "absent.csv")}, "doesn't exist, and a CSV file")


def test_parquet_with_ordinary_columns(tmp_path: Path):
    path = tmp_path / "own.parquet"
    columns = {"age": [float(i) for i in range(10)], "dose": list(range(10)), "label": ["a", "b"] * 5}
    pq.write_table(pa.table(columns), path)
    dataset = read({"name": "parquet", "path": str(path)})
    assert (dataset.shape, dataset.classes) == ((2,), ("a", "b"))
    assert torch.equal(dataset.train.samples[:, 0], dataset.train.samples[:, 1])
    assert read({"name": "parquet", "path": str(path), "features": ["dose"]}).shape == (1,)
    refused(
        {"name": "parquet", "path": str(path), "image": "scan"}, "no column 'scan'; found age, dose, label"
    )
    refused({"name": "parquet", "path": str(path), "features": ["dosis"]}, "no column 'dosis'")
    pq.write_table(pa.table({**columns, "city": ["Rome"] * 10}), path)
    refused(
        {"name": "parquet", "path": str(path)},
        "column 'city' is of type string, and numbers",
        "data.features",
    )
