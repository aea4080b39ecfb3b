"""The batches of many clients, step by step. Short batches are filled up and masked.

Everything about a step that isn't arithmetic on samples is worked out on the host, so that a device gets the
steps of a whole round in one transfer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from mnemos.client.requests import RequestColumns
from mnemos.client.workload import (
    Course,
    Key,
    LocalWorkload,
    apply_label_map,
    course_order,
    drawn_parts,
    draws,
    in_blocks,
    one_pass,
    workload,
)
from mnemos.common.devices import CPU, send
from mnemos.data.augment import Augmentation
from mnemos.data.batches import Draw, Loader, join
from mnemos.data.dataset import Dataset
from mnemos.methods.exchange import Batch, State
from mnemos.vector import Layout

_Load = Callable[[Draw], tuple[Tensor, Tensor]]
"""Makes input and labels of a drawn batch."""


class Fed(NamedTuple):
    """The batches of one step: input [K, B, …], labels [K, B], mask [K, B] (None: all are samples)."""

    batch: Batch
    sizes: Tensor
    """How many samples each client has in it [K], on the host."""
    counts: int | Tensor
    """The same on the device of the batches; one number if it is the same for all clients."""


class _Planned(NamedTuple):
    """A step of several clients before their samples are loaded."""

    draw: Draw
    """The clients' samples laid end to end."""
    source: Tensor | None
    """For each place in the batches [K, B], the index of its sample in `draw`; None: K times B in order."""
    mask: Tensor | None
    """1.0 for samples, 0.0 for what only fills up a batch [K, B]; None: all are samples."""
    counts: Tensor | None
    """How many samples each client has [K]; None: all have the same number."""
    parts: State
    """What the method's parts have drawn, with one row per client."""


class Feed:
    """The batches of the clients of a chunk, on the loader's device."""

    def __init__(
        self,
        dataset: Dataset,
        asked: RequestColumns,
        courses: Sequence[Course],
        loader: Loader,
        layout: Layout,
        batch_norm: bool,
    ) -> None:
        """`courses`: each client's, in training; `loader`: with the augmentation of training.

        `layout`: of the model, for what its parts draw; `batch_norm`: whether it has such layers.
        """
        self._dataset, self._asked, self._courses = dataset, asked, courses
        self._layout, self._batch_norm = layout, batch_norm
        samples = asked.samples.indices
        self._loader = loader.of(samples)
        self._load: _Load = self._loader
        if loader.device == CPU:  # on a device, memory is worth more than a few kernels a step
            self._load = self._loader.keep(samples, max(course.passes for course in set(courses)))
        self._offsets = [0, *accumulate(asked.samples.sizes[:-1])]
        self._device = loader.device
        self._maps = self._label_maps()

    def training(self) -> Iterator[Fed]:
        """The batches of every step of training, with labels as each client has them.

        The batches of a step end with the last client that still trains. A client before it that has no batch
        left gets an empty one, in which everything is masked.
        """
        augment = self._asked.plan.local.augment
        if augment or not self._asked.plain:
            planned = self._joined([workload(own, self._batch_norm) for own in self._asked.requests], augment)
        else:
            planned = self._in_columns(self._courses)
        return self._loaded(self._load, self._with_parts(planned))

    def one_pass(self, loader: Loader) -> Iterator[Fed]:
        """The batches of one pass over all clients' samples; `loader`: without augmentation."""
        loader = loader.of(self._asked.samples.indices)
        todo = [one_pass(request) for request in self._asked.requests]
        planned = self._in_columns([own.course for own in todo]) if self._asked.plain else self._joined(todo)
        return self._loaded(loader, planned)

    def _in_columns(self, courses: Sequence[Course]) -> Iterator[_Planned]:
        """The steps of clients without noise, marks and augmentation: each is cut out of all their orders."""
        places, lengths = self._orders(courses)
        indices = self._asked.samples.indices[places]
        sizes, starts = _cuts(courses, lengths)
        alike = len(set(courses)) == 1
        for own, begin in zip(sizes.T, starts.T, strict=True):
            active = len(own) if alike else int(own.nonzero()[-1]) + 1
            width = int(own[0]) if alike else int(own[:active].max())
            where = begin[:active, None] + torch.arange(width)
            mask, counts = None, None if alike else own[:active]
            if counts is not None and int(counts.min()) < width:
                real = torch.arange(width) < counts[:, None]
                # Filled up by a sample that is there: zeros could be anything to a model, also a division by
                # zero, and not even a weight of zero heals a NaN.
                mask, where = real.float(), torch.where(real, where, begin[:active, None])
            cut = where.flatten()
            yield _Planned(Draw(indices[cut], places[cut]), None, mask, counts, {})

    def _orders(self, courses: Sequence[Course]) -> tuple[Tensor, Tensor]:
        """(positions among all clients' samples, client after client and pass after pass; how many of each).

        Where one batch has all samples of each client, they are in order, and nothing is drawn.
        """
        offsets = torch.tensor(self._offsets)
        kinds = dict.fromkeys(courses)
        if all(course.in_order for course in kinds):
            passes = {course: course.passes for course in kinds}
            counts = torch.tensor(self._asked.samples.sizes)
            lengths = counts * torch.tensor([passes[course] for course in courses])
            begins = lengths.cumsum(0) - lengths
            rows = torch.repeat_interleave(lengths)
            return (torch.arange(len(rows)) - begins[rows]) % counts[rows] + offsets[rows], lengths
        orders = [_order(*own) for own in zip(courses, self._asked.keys, strict=True)]
        lengths = torch.tensor([own.shape[0] for own in orders])
        return torch.cat(orders) + torch.repeat_interleave(offsets, lengths), lengths

    def _joined(
        self, workloads: Sequence[LocalWorkload], augment: Sequence[Augmentation] = ()
    ) -> Iterator[_Planned]:
        """The steps of clients whose batches differ in size, or have noise, marks or augmentation."""
        drawn = [
            draws(todo, augment, self._dataset.shape, key)
            for todo, key in zip(workloads, self._asked.keys, strict=True)
        ]
        for _ in range(max(todo.total for todo in workloads)):
            batches = [next(own, None) for own in drawn]
            while batches[-1] is None:
                batches.pop()
            placed = [
                batch._replace(positions=batch.positions + offset)
                for batch, offset in zip(batches, self._offsets, strict=False)
                if batch is not None
            ]
            sizes = torch.tensor([0 if batch is None else batch.size for batch in batches])
            yield _Planned(join(placed), *_places(sizes), {})

    def _with_parts(self, planned: Iterator[_Planned]) -> Iterator[_Planned]:
        """The steps of training, with what the method's parts draw for the clients that make them."""
        if not self._asked.plan.method.uses("draw"):
            return planned
        own = [drawn_parts(request, self._layout) for request in self._asked.requests]

        def stacked(count: int) -> State:
            drawn = [next(parts) for parts in own[:count]]
            return {name: torch.stack([parts[name] for parts in drawn]) for name in drawn[0]}

        return (
            step._replace(parts=stacked(len(own) if step.counts is None else len(step.counts)))
            for step in planned
        )

    def _loaded(self, load: _Load, planned: Iterator[_Planned]) -> Iterator[Fed]:
        """The steps with their samples; sent to the device block by block."""
        for block in in_blocks(planned, self._device):
            # The sizes of a step's batches are needed on the host, too.
            host = [step.counts for step in block]
            for step, sizes in zip(send(block, self._device), host, strict=True):
                yield self._filled(load, step, sizes)

    def _filled(self, load: _Load, step: _Planned, sizes: Tensor | None) -> Fed:
        x, labels = load(step.draw)
        if step.source is None:
            count = len(self._courses) if sizes is None else len(sizes)
            shape = (count, step.draw.size // count)
            x, labels = x.view(*shape, *x.shape[1:]), labels.view(shape)
        else:
            x, labels = x[step.source], labels[step.source]
        if self._maps is not None:
            labels = self._maps[: len(labels)].gather(1, labels)
        counts = x.shape[1] if step.counts is None else step.counts
        sizes = torch.full((len(x),), x.shape[1]) if sizes is None else sizes
        return Fed(Batch(x, labels, step.mask, step.parts), sizes, counts)

    def _label_maps(self) -> Tensor | None:
        """The class that each client takes each class for [K, classes]; None: all know their labels."""
        if self._asked.label_maps is None:
            return None
        classes = torch.arange(len(self._dataset.classes))
        maps = [apply_label_map(classes, own) for own in self._asked.label_maps]
        return torch.stack(maps).to(self._device)


def _order(course: Course, key: Key) -> Tensor:
    """Positions among the client's samples, pass after pass; as they are where a batch has all of them."""
    return torch.arange(course.size).repeat(course.passes) if course.in_order else course_order(course, key)


def _cuts(courses: Sequence[Course], lengths: Tensor) -> tuple[Tensor, Tensor]:
    """(how many samples each client has in each step, where they begin among all orders) [K, steps].

    `lengths`: of the clients' orders, which are laid end to end. A client that makes no step has 0 samples.
    """
    kinds = {course: kind for kind, course in enumerate(dict.fromkeys(courses))}
    most = max(course.total for course in kinds)
    table = torch.tensor(
        [[*(course.epoch * course.passes)[: course.total], *[0] * (most - course.total)] for course in kinds]
    )
    sizes = table[torch.tensor([kinds[course] for course in courses])]
    starts = sizes.cumsum(1) - sizes + (lengths.cumsum(0) - lengths)[:, None]
    return sizes, starts.clamp_max_(int(lengths.sum()) - 1)  # a client without samples is filled up, too


def _places(sizes: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """(`source`, `mask`, `counts`) of batches of these sizes, whose samples are laid end to end."""
    width = int(sizes.max())
    if int(sizes.min()) == width:
        return None, None, sizes
    mask = torch.arange(width) < sizes[:, None]
    # By a sample that is there: zeros could be anything to a model, also a division by zero, and not even a
    # weight of zero heals a NaN.
    starts = (sizes.cumsum(0) - sizes).clamp_max(int(sizes.sum()) - 1)
    return torch.where(mask, starts[:, None] + torch.arange(width), starts[:, None]), mask.float(), sizes
