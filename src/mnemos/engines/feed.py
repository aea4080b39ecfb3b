"""The batches of many clients, step by step: short ones are filled up, and masked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mnemos.client.workload import Key, LocalWorkload, apply_label_map, draws, order
from mnemos.data.augment import Augmentation
from mnemos.data.batches import Draw, Loader, join
from mnemos.data.dataset import Dataset
from mnemos.methods.exchange import Batch


class Fed(NamedTuple):
    """The batches of one step: input [K, B, …], labels [K, B], mask [K, B] (None: all are samples)."""

    batch: Batch
    sizes: Tensor
    """How many samples each client has in it [K]."""


def feed(
    dataset: Dataset, workloads: Sequence[LocalWorkload], keys: Sequence[Key], augment: Sequence[Augmentation]
) -> Iterator[Fed]:
    """The batches of every step, with labels as each client has them.

    A step has those of the clients up to the last that has a batch; the batches of others among these are
    empty.
    """
    loaded = _loaded(dataset, workloads, keys, augment)
    if all(todo.label_map is None for todo in workloads):
        return loaded
    classes = torch.arange(len(dataset.classes))
    maps = torch.stack([apply_label_map(classes, todo.label_map) for todo in workloads])
    return (
        Fed(batch._replace(labels=maps[: len(sizes)].gather(1, batch.labels)), sizes)
        for batch, sizes in loaded
    )


def _loaded(
    dataset: Dataset, workloads: Sequence[LocalWorkload], keys: Sequence[Key], augment: Sequence[Augmentation]
) -> Iterator[Fed]:
    """The batches of every step, with their true labels."""
    # In the order of axes that models have by default: vmap knows no other.
    loader = Loader(dataset, augment, channels_last=False)
    if not augment and _alike(workloads):
        yield from _in_columns(loader, workloads, keys)
        return
    feeds = [draws(todo, augment, dataset.shape, key) for todo, key in zip(workloads, keys, strict=True)]
    for _ in range(max(todo.total for todo in workloads)):
        batches = [next(drawn, None) for drawn in feeds]
        while batches[-1] is None:
            batches.pop()
        count = torch.tensor([0 if batch is None else len(batch) for batch in batches])
        yield _filled(loader(join([batch for batch in batches if batch is not None])), count)


def _alike(workloads: Sequence[LocalWorkload]) -> bool:
    """Whether all have batches of the same sizes, of samples as they are."""
    first = workloads[0]
    alike = all(todo.epoch == first.epoch and todo.total == first.total for todo in workloads)
    return alike and not any(todo.noise or todo.trigger for todo in workloads)


def _in_columns(loader: Loader, workloads: Sequence[LocalWorkload], keys: Sequence[Key]) -> Iterator[Fed]:
    """The batches of clients that are alike: a step is a few columns of one matrix of all indices."""
    first = workloads[0]
    rows = [todo.samples[order(todo, key)] for todo, key in zip(workloads, keys, strict=True)]
    sizes = (first.epoch * first.passes)[: first.total]
    for columns in torch.stack(rows)[:, : sum(sizes)].split(sizes, 1):  # type: ignore[no-untyped-call]
        flat = columns.flatten()
        yield _filled(loader(Draw(flat, flat)), torch.full((len(workloads),), columns.shape[1]))


def _filled(loaded: tuple[Tensor, Tensor], sizes: Tensor) -> Fed:
    """One step from the clients' samples laid end to end; short batches are filled up, and masked."""
    x, labels = loaded
    width = int(sizes.max())
    if int(sizes.min()) == width:
        shape = (len(sizes), width)
        return Fed(Batch(x.view(*shape, *x.shape[1:]), labels.view(shape)), sizes)
    mask = torch.arange(width) < sizes[:, None]
    # By a sample that is there: zeros could be anything to a model, also a division by zero, and not even a
    # weight of zero heals a NaN.
    starts = (sizes.cumsum(0) - sizes).clamp_max(len(x) - 1)
    source = torch.where(mask, starts[:, None] + torch.arange(width), starts[:, None])
    return Fed(Batch(x[source], labels[source], mask.float()), sizes)
