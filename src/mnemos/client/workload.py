"""A client's workload in a round: which batches in which order, how many steps, at which learning rates.

Everything random about its batches is drawn here, from the client's own generators, before any arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import groupby, islice, repeat
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from mnemos.client.messages import TrainRequest
from mnemos.client.requests import RequestColumns
from mnemos.common import rng
from mnemos.common.devices import CPU, bytes_in
from mnemos.data.augment import Augmentation
from mnemos.data.batches import Draw
from mnemos.data.trigger import Trigger
from mnemos.methods.exchange import Rates, State
from mnemos.optim.local import round_steps
from mnemos.vector import Layout

_BLOCK_BYTES = 64_000_000
"""Bytes of drawn steps that are sent to a device at a time."""


@dataclass(frozen=True)
class LocalWorkload:
    """The samples that a client trains on in a round, and for how long."""

    samples: Tensor
    batch: int
    epochs: int
    steps: int | None
    noise: float
    drop_single: bool
    """Leave out a last batch of one sample, in which batch-norm has no variance to measure."""
    fill: bool = False
    """Fill the last batch up to the size of the others, by repeating samples."""
    label_map: Tensor | None = None
    """The class that the client takes each class for; None: its labels are right."""
    trigger: Trigger | None = None
    """The mark that it puts on some of its samples; None: it leaves them as they are."""

    @cached_property
    def course(self) -> Course:
        """Its batches and steps, which it shares with all workloads of as many samples."""
        return _course(
            self.samples.shape[0], self.batch, self.epochs, self.steps, self.drop_single, self.fill
        )

    @property
    def epoch(self) -> tuple[int, ...]:
        """The sizes of the batches of one pass over the samples."""
        return self.course.epoch

    @property
    def total(self) -> int:
        """How many steps the client makes in the round."""
        return self.course.total

    @property
    def passes(self) -> int:
        """How many passes over the samples it begins."""
        return self.course.passes

    @property
    def ends(self) -> list[int]:
        """After which steps, counted from 1, an epoch is over."""
        return self.course.ends


class Course(NamedTuple):
    """The batches and steps of a workload, which depend on the number of samples and not on the samples."""

    size: int
    """The number of samples."""
    epoch: tuple[int, ...]
    """The sizes of the batches of one pass over the samples."""
    total: int
    """How many steps the client makes in the round."""

    @property
    def passes(self) -> int:
        """How many passes over the samples are begun."""
        return -(-self.total // len(self.epoch))

    @property
    def ends(self) -> list[int]:
        """After which steps, counted from 1, an epoch is over.

        An epoch is a whole pass over the samples; a round that is too short for one is an epoch, too.
        """
        size = len(self.epoch)
        return [size * (epoch + 1) for epoch in range(self.total // size)] or [self.total]

    @property
    def in_order(self) -> bool:
        """Whether a batch has all samples, so that their order doesn't matter."""
        return self.epoch == (self.size,)


@lru_cache(maxsize=4096)
def _course(count: int, batch: int, epochs: int, steps: int | None, drop_single: bool, fill: bool) -> Course:
    """The course of a workload with `count` samples; see the fields of `LocalWorkload`."""
    full, rest = divmod(count, batch)
    if fill:
        epoch = (batch,) * (full + (rest > 0))
    else:
        single = rest == 1 and drop_single and full > 0
        epoch = (batch,) * full + ((rest,) if rest and not single else ())
    return Course(count, epoch, round_steps(steps, epochs, len(epoch)))


def apply_label_map(labels: Tensor, label_map: Tensor | None) -> Tensor:
    """The labels that a client uses, which are wrong if it has a label map."""
    return labels if label_map is None else label_map[labels]


Key = tuple[int, int, int]
"""(seed, round, client): where everything random about a client's round comes from."""


def order(workload: LocalWorkload, key: Key) -> Tensor:
    """Positions among the client's samples, in the order in which its batches take them, pass after pass."""
    return course_order(workload.course, key)


def course_order(course: Course, key: Key) -> Tensor:
    """The same of any workload with this course."""
    seed, *where = key
    generator = rng.generator(seed, "batches", *where)
    count, used, passes = course.size, sum(course.epoch), course.passes
    # All samples before any is there again: more than one permutation a pass only where batches are filled.
    each = -(-used // count)
    drawn = torch.cat([torch.randperm(count, generator=generator) for _ in range(passes * each)])
    return drawn if used == each * count else drawn.view(passes, each * count)[:, :used].flatten()


def draws(
    workload: LocalWorkload, augment: Sequence[Augmentation], shape: tuple[int, ...], key: Key
) -> Iterator[Draw]:
    """A client's batches in one round, not yet loaded, with everything random about them."""
    seed, *where = key
    jitter = rng.generator(seed, "augment", *where)
    static = rng.generator(seed, "noise", *where)
    trigger, marks = workload.trigger, rng.generator(seed, "backdoor", *where)
    places, sizes = order(workload, key), list(workload.epoch * workload.passes)
    batches = zip(torch.split(workload.samples[places], sizes), torch.split(places, sizes), strict=True)
    for indices, positions in islice(batches, workload.total):
        count = len(positions)
        yield Draw(
            indices,
            positions,
            tuple(part.draw(count, _image(shape), jitter) for part in augment),
            torch.randn(count, *shape, generator=static) * workload.noise if workload.noise else None,
            trigger,
            None if trigger is None else torch.rand(count, generator=marks) < trigger.poisoned,
        )


class Drawn(NamedTuple):
    """Everything that is random about a step."""

    batch: Draw
    parts: State
    """What the method's parts have drawn."""


def drawn_parts(request: TrainRequest, layout: Layout) -> Iterator[State]:
    """What the method's parts draw for each step of a client, step after step; `layout`: of the model."""
    plan = request.plan
    if not plan.method.uses("draw"):
        yield from repeat({})
    own = rng.generator(plan.seed, "parts", request.round, request.client)
    while True:
        yield plan.method.draw(plan.local.batch, layout, own)


def key_of(request: TrainRequest) -> Key:
    """Where everything random about a request comes from."""
    return request.plan.seed, request.round, request.client


_Step = TypeVar("_Step")


def in_blocks(steps: Iterable[_Step], device: torch.device) -> Iterator[list[_Step]]:
    """Steps in blocks, so that a device gets many in one transfer; one by one on the CPU.

    A block is usually a client's whole round, and at most `_BLOCK_BYTES`.
    """
    if device == CPU:
        yield from ([step] for step in steps)
        return
    block: list[_Step] = []
    left = _BLOCK_BYTES
    for step in steps:
        block.append(step)
        left -= bytes_in(step)
        if left <= 0:
            yield block
            block, left = [], _BLOCK_BYTES
    if block:
        yield block


def workload(request: TrainRequest, batch_norm: bool) -> LocalWorkload:
    """What a client trains on in a round; `batch_norm`: whether its model has batch-norm layers."""
    local = request.plan.local
    todo = LocalWorkload(
        request.samples,
        local.batch,
        local.epochs,
        local.steps,
        request.noise,
        batch_norm,
        local.fill,
        request.label_map,
        request.trigger,
    )
    return (
        todo if request.steps is None or request.steps >= todo.total else replace(todo, steps=request.steps)
    )


def courses(asked: RequestColumns, batch_norm: bool) -> list[Course]:
    """The batches and steps of each client; `batch_norm` as in `workload`."""
    local = asked.plan.local
    known: dict[tuple[int, int | None], Course] = {}
    keys = [(size, pace.limit) for size, pace in zip(asked.samples.sizes, asked.paces, strict=True)]
    for size, limit in dict.fromkeys(keys):
        course = _course(size, local.batch, local.epochs, local.steps, batch_norm, local.fill)
        if limit is not None and limit < course.total:
            course = course._replace(total=limit)
        known[size, limit] = course
    return [known[key] for key in keys]


def one_pass(request: TrainRequest) -> LocalWorkload:
    """One pass over all of a client's samples, for the data passes of a method."""
    return LocalWorkload(
        request.samples,
        request.plan.local.batch,
        1,
        None,
        request.noise,
        drop_single=False,
        label_map=request.label_map,
        trigger=request.trigger,
    )


def rates(request: TrainRequest, todo: LocalWorkload) -> Rates:
    """A client's learning rates in a round. An unfinished last pass has the rate of the epoch before it.

    A client that has to stop early uses the first rates of a whole round.
    """
    local = request.plan.local
    whole = todo if request.steps is None else replace(todo, steps=local.steps)
    epochs = len(whole.ends)
    lengths = [len(whole.epoch)] * (epochs - 1)
    lengths.append(whole.total - sum(lengths))
    factors = [local.schedule.factor(request.round, epoch, epochs) for epoch in range(epochs)]
    steps = [factor for factor, length in zip(factors, lengths, strict=True) for _ in range(length)]
    return tuple((len(list(group)), local.lr * factor) for factor, group in groupby(steps[: todo.total]))


def first_rates(rates: Rates, steps: int) -> Rates:
    """The learning rates of the first steps."""
    return tuple((len(list(group)), rate) for rate, group in groupby(step_rates(rates)[:steps]))


def step_rates(rates: Rates) -> list[float]:
    """The learning rate of each step."""
    return [rate for steps, rate in rates for _ in range(steps)]


def _image(shape: tuple[int, ...]) -> tuple[int, int, int]:
    channels, height, width = shape
    return channels, height, width
