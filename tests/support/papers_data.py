"""Tiny data sets in the formats of the papers' own: as few samples as a hundred clients can share."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

CLIENTS, EACH = 100, 10
"""Ten samples a client: nine to train on, one held out."""


def write_papers_data(folder: Path) -> Path:
    """CIFAR-10, CIFAR-100, FEMNIST and Fashion-MNIST below a data folder."""
    rng = np.random.default_rng(0)
    train, test = CLIENTS * EACH, 40
    for part, count in (("train", train), ("test", test)):
        _cifar10(folder / "cifar-10-batches-bin", part, count, rng)
        _cifar100(folder / "cifar-100-binary", part, count, rng)
        _femnist(folder / "femnist" / part / "all_data_0.json", count, rng)
        _fashion(folder / "fashion-mnist", "train" if part == "train" else "t10k", count, rng)
    return folder


def write_few_images(folder: Path, train: int = 200) -> Path:
    """CIFAR-100 for four clients: a fiftieth of what each holds is one sample to hold out."""
    rng = np.random.default_rng(0)
    for part, count in (("train", train), ("test", 40)):
        _cifar100(folder / "cifar-100-binary", part, count, rng)
    return folder


def _cifar100(folder: Path, part: str, count: int, rng: np.random.Generator) -> None:
    fine = np.arange(count) % 100
    _write(folder / f"{part}.bin", [fine // 5, fine], rng)


def _cifar10(folder: Path, part: str, count: int, rng: np.random.Generator) -> None:
    names = [f"data_batch_{number}" for number in range(1, 6)] if part == "train" else ["test_batch"]
    for name in names:
        _write(folder / f"{name}.bin", [np.arange(count // len(names)) % 10], rng)


def _write(file: Path, labels: list[np.ndarray], rng: np.random.Generator) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = rng.integers(256, size=(len(labels[0]), 3 * 32 * 32))
    file.write_bytes(np.column_stack([*labels, pixels]).astype(np.uint8).tobytes())


def _femnist(file: Path, count: int, rng: np.random.Generator) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    images = rng.integers(2, size=(count, 28 * 28)).tolist()  # 0.0 and 1.0: short to write, quick to parse
    data = {"writer": {"x": images, "y": (np.arange(count) % 62).tolist()}}
    file.write_text(json.dumps({"users": ["writer"], "num_samples": [count], "user_data": data}))


def _fashion(folder: Path, part: str, count: int, rng: np.random.Generator) -> None:
    """In the idx format: a magic number and the axes' lengths, big-endian, then the bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    images = rng.integers(256, size=(count, 28, 28)).astype(np.uint8)
    labels = (np.arange(count) % 10).astype(np.uint8)
    for name, magic, array in (("images-idx3", 2051, images), ("labels-idx1", 2049, labels)):
        header = np.array([magic, *array.shape], ">u4").tobytes()
        (folder / f"{part}-{name}-ubyte").write_bytes(header + array.tobytes())
