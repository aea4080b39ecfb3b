"""Data sets from arrays in the usual forms: layout, number type, classes, owners, a test part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemos.common.rng import numpy_generator
from mnemos.data.dataset import Dataset, Split, check
from mnemos.data.sources._scale import mean_std
from mnemos.errors import DataError

Array = NDArray[Any]
Ints = NDArray[np.int64]
Layout = Literal["auto", "nchw", "nhwc"]

_CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class SampleTable:
    """Samples with their labels and owners, as they were read."""

    samples: Array
    labels: Array
    owners: Array | None = None


def build(
    name: str,
    parts: tuple[SampleTable, SampleTable | None],
    *,
    where: str,
    share: float,
    classes: Sequence[str] | None = None,
    layout: Layout = "auto",
) -> Dataset:
    """A data set from its training part and test part; if that is None, `share` of each class is split off.

    `where` is the file or folder that errors name. Without `classes`, the labels' sorted values are the
    classes' names.
    """
    tables = [table for table in parts if table is not None]
    for table, part in zip(tables, ("training", "test"), strict=False):
        _check_lengths(table, f"{where}: the {part} part")
    if not len(tables[0].labels):
        raise DataError(f"{where}: there are no training samples")
    samples = _samples([table.samples for table in tables], layout, where)
    divided = divide(tables, samples, where=where, share=share, classes=classes)
    return finish(name, divided.train, divided.test, divided.classes, divided.owners)


class Divided(NamedTuple):
    """The two parts of a data set, and the names that labels and owners stand for."""

    train: Split
    test: Split
    classes: tuple[str, ...]
    owners: tuple[str, ...]


def divide(
    tables: Sequence[SampleTable],
    samples: Sequence[Tensor],
    *,
    where: str,
    share: float,
    classes: Sequence[str] | None = None,
) -> Divided:
    """Training part and test part of one or two tables, whose samples are these tensors; as `build` says."""
    labels, names = _classes([_flat(table.labels, where) for table in tables], classes, where)
    owners, owner_names = _owners(tables, where)
    splits = [Split(*parts) for parts in zip(samples, labels, owners, strict=True)]
    if len(splits) == 1:
        splits = list(split_off(splits[0], share, where))
    return Divided(splits[0], splits[1], names, owner_names)


def finish(
    name: str, train: Split, test: Split, classes: Sequence[str], owners: Sequence[str] = ()
) -> Dataset:
    """A checked data set, with the mean and standard deviation of its training samples."""
    if not len(train.samples):
        raise DataError(f"{name}: there are no training samples")
    mean, std = mean_std(train.samples)
    return check(Dataset(name, train, test, tuple(classes), mean, std, tuple(owners)))


def split_off(whole: Split, share: float, where: str) -> tuple[Split, Split]:
    """(training part, test part), with a `share` of the samples, evenly over the classes, for testing."""
    chosen = _choose(whole.labels.numpy(), share)
    if not chosen.any():
        raise DataError(f"{where}: {len(whole)} samples are too few to split off a test part of {share:g}")
    return _take(whole, ~chosen), _take(whole, chosen)


def _choose(labels: Ints, share: float) -> NDArray[np.bool_]:
    """A mask of the samples for testing, which leaves every class a sample for training."""
    shuffled = numpy_generator(0, "test part").permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    # Every (1/share)-th sample in the order of classes: exact in total, off by less than one per class.
    steps = np.floor(np.arange(len(labels) + 1) * share + 1e-9)
    chosen = np.zeros(len(labels), dtype=np.bool_)
    chosen[order[np.diff(steps) > 0]] = True
    _, first, members = np.unique(labels[order], return_index=True, return_counts=True)
    taken = np.add.reduceat(chosen[order].astype(np.int64), first)
    chosen[order[first[taken == members]]] = False
    return chosen


def _take(split: Split, mask: NDArray[np.bool_]) -> Split:
    index = torch.from_numpy(np.flatnonzero(mask))
    return Split(
        split.samples[index], split.labels[index], None if split.owners is None else split.owners[index]
    )


def _check_lengths(table: SampleTable, where: str) -> None:
    count = len(table.samples) if table.samples.ndim else 0
    columns = [("labels", table.labels), ("owners", table.owners)]
    for what, column in columns:
        if column is not None and (not column.ndim or len(column) != count):
            found = len(column) if column.ndim else "a single value for the"
            raise DataError(f"{where} has {count} samples and {found} {what}")


def _samples(parts: list[Array], layout: Layout, where: str) -> list[Tensor]:
    """uint8 images [N, C, H, W] if the values allow it, otherwise float32 images or features [N, D]."""
    _check_types(parts, where)
    last = parts[0].ndim == 4 and _channels_last(parts[0].shape, layout, where)
    arranged = [_arrange(array, last, where) for array in parts]
    shapes = [array.shape[1:] for array in arranged]
    if len(arranged) > 1 and shapes[0] != shapes[1]:
        raise DataError(f"{where}: training samples have the shape {shapes[0]} and test samples {shapes[1]}")
    if 0 in shapes[0]:
        raise DataError(f"{where}: samples have the shape {shapes[0]}, which holds no values")
    image = arranged[0].ndim == 4
    kind = np.uint8 if image and all(_fits_bytes(array) for array in arranged) else np.float32
    return [_tensor(array, kind, where) for array in arranged]


def _check_types(parts: list[Array], where: str) -> None:
    for array in parts:
        if array.dtype.kind not in "buif":
            raise DataError(f"{where}: samples are of type {array.dtype}, and numbers are expected")
    if len({array.dtype.kind == "f" for array in parts}) > 1:
        raise DataError(
            f"{where}: training samples are {parts[0].dtype} and test samples {parts[1].dtype}; "
            "both need the same units"
        )


def _channels_last(shape: tuple[int, ...], layout: Layout, where: str) -> bool:
    """Whether images are [N, H, W, C] rather than [N, C, H, W]."""
    if layout != "auto":
        return layout == "nhwc"
    second, last = shape[1] in _CHANNELS, shape[3] in _CHANNELS
    if second == last:
        problem = "both the second and the last axis" if last else "neither the second nor the last axis"
        raise DataError(
            f"{where}: images have the shape {shape} and {problem} could hold 1, 3 or 4 channels; "
            "set 'layout' to nchw or nhwc"
        )
    return last


def _arrange(array: Array, channels_last: bool, where: str) -> Array:
    """Images as [N, C, H, W], features as [N, D]."""
    if array.ndim not in {2, 3, 4}:
        raise DataError(
            f"{where}: samples have the shape {array.shape}, and images have 3 or 4 axes and features 2"
        )
    if array.ndim == 3:
        return array[:, None]
    return np.moveaxis(array, 3, 1) if array.ndim == 4 and channels_last else array


def _fits_bytes(array: Array) -> bool:
    if array.dtype.kind == "f":
        return False
    return (
        array.dtype in (np.uint8, np.bool_) or not array.size or bool(array.min() >= 0 and array.max() <= 255)
    )


def _tensor(array: Array, kind: type[np.uint8] | type[np.float32], where: str) -> Tensor:
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(array, dtype=kind)
    if not values.flags.writeable:
        values = values.copy()
    if kind is np.float32 and not np.isfinite(values).all():
        raise DataError(f"{where}: samples hold values that are not finite (NaN or infinity)")
    return torch.from_numpy(values)


def _flat(labels: Array, where: str) -> Array:
    """Labels as one whole number or text per sample."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise DataError(f"{where}: labels have the shape {labels.shape}, and one label a sample is expected")
    if labels.dtype.kind == "f":
        if not (
            np.isfinite(labels).all() and (labels == np.floor(labels)).all() and (abs(labels) < 2**53).all()
        ):
            raise DataError(f"{where}: labels are not whole numbers")
        return labels.astype(np.int64)
    if labels.dtype.kind == "b":
        return labels.astype(np.int64)
    return as_text(labels, where, "labels")


def as_text(values: Array, where: str, what: str) -> Array:
    """Values with whole numbers as int64 and bytes as text; other types are refused."""
    if values.dtype.kind == "S":
        try:
            return np.char.decode(values, "utf-8")
        except UnicodeDecodeError:
            raise DataError(f"{where}: {what} are bytes that are not UTF-8 text") from None
    if values.dtype.kind not in "iuU":
        raise DataError(f"{where}: {what} are of type {values.dtype}, and whole numbers or text are expected")
    # One type for all whole numbers: numpy would concatenate int64 and uint64 as floats.
    return values if values.dtype.kind == "U" else values.astype(np.int64)


def _classes(
    parts: list[Array], classes: Sequence[str] | None, where: str
) -> tuple[list[Tensor], tuple[str, ...]]:
    """Labels as indices from 0, and the classes' names."""
    if classes is None:
        return _number(parts, where, "labels")
    names = tuple(classes)
    if len(set(names)) != len(names):
        raise DataError(f"{where}: the classes' names are not all different")
    return [_by_name(labels, names, where) for labels in parts], names


def _by_name(labels: Array, names: tuple[str, ...], where: str) -> Tensor:
    if labels.dtype.kind == "U":
        index = {name: position for position, name in enumerate(names)}
        unknown = next((label for label in labels.tolist() if label not in index), None)
        if unknown is not None:
            raise DataError(f"{where}: the label '{unknown}' is none of the {len(names)} classes")
        return torch.tensor([index[label] for label in labels.tolist()], dtype=torch.int64)
    wrong = labels[(labels < 0) | (labels >= len(names))]
    if len(wrong):
        raise DataError(
            f"{where}: the label {wrong[0]} is out of range, and 0 to {len(names) - 1} are expected"
        )
    return torch.from_numpy(labels.astype(np.int64))


def _owners(tables: Sequence[SampleTable], where: str) -> tuple[list[Tensor | None], tuple[str, ...]]:
    """Each table's owners as indices from 0, None for a table without any; and the owners' names."""
    known = [table.owners for table in tables if table.owners is not None]
    for owners in known:
        if owners.ndim != 1:
            raise DataError(
                f"{where}: owners have the shape {owners.shape}, and one owner a sample is expected"
            )
    if not known:
        return [None] * len(tables), ()
    indices, names = _number([as_text(owners, where, "owners") for owners in known], where, "owners")
    numbered = iter(indices)
    return [None if table.owners is None else next(numbered) for table in tables], names


def _number(parts: list[Array], where: str, what: str) -> tuple[list[Tensor], tuple[str, ...]]:
    """Indices into the sorted values of all parts, and these values as text."""
    filled = [part for part in parts if part.size] or parts
    if len({part.dtype.kind == "U" for part in filled}) > 1:
        raise DataError(f"{where}: {what} are numbers in one part and text in the other")
    values, index = np.unique(np.concatenate(filled), return_inverse=True)
    ends = np.cumsum([len(part) for part in parts])[:-1]
    indices = [torch.from_numpy(part) for part in np.split(index.astype(np.int64), ends)]
    return indices, tuple(str(value) for value in values.tolist())
