"""A replica of the model, in which clients train one after the other: a request in, a reply out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mnemos.client.messages import Plan, TrainRequest, reply_to_bytes
from mnemos.client.precision import check_precision
from mnemos.client.reply import Trained, optimizer_state, view
from mnemos.client.step import Step, Trainees, train
from mnemos.client.workload import (
    Drawn,
    apply_label_map,
    drawn_parts,
    draws,
    first_rates,
    in_blocks,
    key_of,
    one_pass,
    rates,
    step_rates,
    workload,
)
from mnemos.common import activity, rng
from mnemos.common.devices import CPU, send, synchronize
from mnemos.data.batches import Draw, Loader, load_ahead
from mnemos.data.dataset import Dataset
from mnemos.data.load import load
from mnemos.methods.exchange import Batch, Client, Net, State, TrainReply
from mnemos.models.convolution import fast_convolutions
from mnemos.models.dropout import set_generator
from mnemos.models.features import features_and_logits, head
from mnemos.models.functional import Functional
from mnemos.models.masks import Masks
from mnemos.models.memory import channels_last_is_safe
from mnemos.models.model import build_model
from mnemos.vector import Bound

_R = TypeVar("_R")


@contextmanager
def intra_op(threads: int) -> Iterator[None]:
    """Inside, tensor operations that this thread calls run on `threads` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fresh_model(plan: Plan, dataset: Dataset) -> nn.Module:
    """The experiment's model as it is before the first round."""
    init = rng.generator(plan.seed, "model")
    outputs = len(dataset.classes) * plan.method.head.outputs
    return build_model(plan.model, dataset.shape, outputs, init)


def has_batch_norm(module: nn.Module) -> bool:
    """Whether a sample's output depends on the others in its batch."""
    return any(isinstance(part, _BatchNorm) for part in module.modules())


class _Module:
    """A bound module, as the function that a method sees."""

    def __init__(self, trainer: Trainer, forward: nn.Module) -> None:
        self._trainer = trainer
        self._forward = forward

    def __call__(self, x: Tensor) -> Tensor:
        logits: Tensor = self._forward(x)
        return logits

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return features_and_logits(self._trainer.module, x)

    def head(self, features: Tensor) -> Tensor:
        return head(self._trainer.module, features)

    def at(self, parameters: Tensor) -> Net:
        return self._trainer.functional.net(parameters, self._trainer.bound.buffers).at(parameters)


class Trainer:
    """A replica of the model on a device, in which clients train one after the other. Not thread-safe."""

    def __init__(self, plan: Plan, dataset: Dataset, device: torch.device = CPU) -> None:
        check_precision(plan.local.precision, [device])
        self._plan, self.dataset, self.device = plan, dataset, device
        self.bound = Bound(fresh_model(plan, dataset).to(device))
        self.module = self.bound.module.train()
        self.batch_norm = has_batch_norm(self.module)
        self.channels_last = plan.arithmetic.channels_last and channels_last_is_safe(self.module)
        self.loader = Loader(dataset, plan.local.augment, self.channels_last, device)
        plain = plan.local.precision == "float32" and device.type == "cpu"
        if self.channels_last and plain and not plan.arithmetic.compile:
            fast_convolutions(self.module)
        forward = torch.compile(self.module) if plan.arithmetic.compile else self.module
        self.net = _Module(self, forward)  # type: ignore[arg-type]
        self.dropout: torch.Generator | Masks = torch.Generator()
        if device != CPU and not plan.arithmetic.compile:
            self.dropout = Masks(self.dropout, device)
        set_generator(self.module, self.dropout)
        self._shares: dict[tuple[torch.dtype, int], Tensor] = {}
        self.abandoned = False
        """Whether the client in training is to stop at its next step, because no one waits for it."""

    @cached_property
    def functional(self) -> Functional:
        """A second replica, for methods that look at other models than the one being trained."""
        twin = fresh_model(self._plan, self.dataset).to(self.device)
        set_generator(twin, self.dropout)
        return Functional(twin)

    @cached_property
    def plain_loader(self) -> Loader:
        """A loader of samples as they are, without augmentation."""
        return Loader(self.dataset, (), self.channels_last, self.device)

    def shares(self, losses: Tensor) -> Tensor:
        """The gradient of the mean of losses [B]: 1/B for each, which is kept for the next step."""
        key = losses.dtype, len(losses)
        if key not in self._shares:
            self._shares[key] = torch.ones_like(losses, requires_grad=False).div_(len(losses))
        return self._shares[key]

    def __call__(self, request: TrainRequest) -> TrainReply:
        """Train one client for one round."""
        return train(self.trainee(request))[0]

    def trainee(self, request: TrainRequest) -> Trainees:
        """The client of a request, about to train in this replica.

        A replica has one trainee at a time: the one before must have finished its training.
        """
        return _Trainee(self, request)


class AbandonedError(Exception):
    """The run was interrupted while a client trained."""


class _Trainee(Trainees):
    """One client that trains in a replica, whose module works on the client's own vectors."""

    def __init__(self, replica: Trainer, request: TrainRequest) -> None:
        # When the client has to stop, though not before its first step.
        self._until = math.inf if request.seconds is None else time.monotonic() + request.seconds
        bound, dataset, device = replica.bound, replica.dataset, replica.device
        todo = workload(request, replica.batch_norm)
        self.plan, self.layout = request.plan, bound.layout
        self._replica, self._workload, self._rates = replica, todo, rates(request, todo)
        batches = draws(todo, request.plan.local.augment, dataset.shape, key_of(request))
        drawn = (Drawn(*both) for both in zip(batches, drawn_parts(request, bound.layout), strict=False))
        self._drawn = in_blocks(drawn, device)
        client = view(request, dataset.train.labels, len(dataset.classes))
        self._client, buffers, self._first, self._passes, state, label_map, self._samples = send(
            (
                client,
                request.buffers,
                next(self._drawn, []),
                list(self._one_pass(request)) if device != CPU else [],
                request.state,
                request.label_map,
                todo.samples,
            ),
            device,
        )
        self._request = replace(request, state=state, label_map=label_map)
        bound.load(self._client.start, buffers)
        self.parameters, self.buffers = bound.parameters, bound.buffers
        self.optimizer = optimizer_state(self._request, bound.parameters, bound.layout)
        self.losses = torch.zeros((), device=device)
        self._unread: list[tuple[Tensor, int]] = []
        """On a device: each step's losses, one per sample, and the number of its samples."""
        self._net = self.lowered(replica.net)
        self._seen = 0
        # The replica and its twin share one generator, which is set to the start of this client's masks.
        masks = rng.generator(request.plan.seed, "dropout", request.round, request.client)
        replica.dropout.set_state(masks.get_state())

    @property
    def functional(self) -> Functional:
        return self._replica.functional

    def steps(self) -> Iterator[tuple[Trainees, Step]]:
        todo, optimizer, device = self._workload, self.plan.local.optimizer, self._replica.device
        load_batch = self._replica.loader.of(todo.samples).keep(self._samples, todo.passes)
        ends = frozenset(todo.ends) if optimizer.counts_epochs else frozenset()
        blocks = chain([self._first], (send(block, device) for block in self._drawn))
        loaded = chain.from_iterable(self._loaded(block, load_batch) for block in blocks)
        self._expect("steps", (todo.epoch * todo.passes)[: todo.total])
        for step, ((draw, batch), rate) in enumerate(zip(loaded, step_rates(self._rates), strict=True), 1):
            self._next()
            self._seen += draw.size
            yield self, Step(batch, draw.size, (rate,), (0,) if step in ends else ())
            activity.step(step, todo.total)
            if self._replica.abandoned:
                raise AbandonedError
            if self._until < math.inf:
                synchronize(device)
                if time.monotonic() >= self._until:
                    self._rates = first_rates(self._rates, step)
                    return

    def samples(self) -> Iterator[tuple[Trainees, Batch]]:
        loader = self._replica.plain_loader.of(self._workload.samples)
        self._expect("samples", [draw.size for draw in self._passes])
        for draw in self._passes or self._one_pass(self._request):
            self._next()
            yield self, self._batch(*loader(draw))

    def trained(self, data_means: State) -> Iterator[tuple[TrainRequest, Client, Trained]]:
        end, buffers = self.parameters.clone(), self.buffers.clone()
        if self._unread:
            self.losses = torch.cat([losses for losses, _ in self._unread])
        local = self.plan.local
        state = local.optimizer.settled(self.optimizer) if local.keeps else self.optimizer
        yield self._request, self._client, Trained(end, buffers, self._rates, data_means, state)

    def loss_reader(self) -> Callable[[Tensor], list[float]]:
        seen, cuts = self._seen, [len(losses) for losses, _ in self._unread]
        if not cuts:
            return lambda sums: [float(sums) / seen]
        sizes = [size for _, size in self._unread]

        def read(losses: Tensor) -> list[float]:
            total = torch.zeros(())
            for part, size in zip(torch.split(losses, cuts), sizes, strict=True):
                total.add_(part.mean() * size)
            return [float(total) / seen]

        return read

    def apply(self, function: Callable[..., _R], *values: Tensor | Batch) -> _R:
        return function(*values, self._client)

    def gradient(self, points: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        bound = self._replica.bound
        here = None if points is bound.parameters else bound.parameters.clone()
        if here is not None:
            bound.parameters.copy_(points)
        with torch.enable_grad():
            losses = self.plan.method.batch_loss(self._net, batch, self._client)
            if self._replica.device == CPU:
                losses = batch.mean(losses)
                bound.backward(losses)
            else:
                # The mean's gradient is known, and the mean itself is for the record alone.
                bound.backward(losses, self._replica.shares(losses))
        if here is not None:
            bound.parameters.copy_(here)
        return bound.gradients, losses.detach()

    def add_losses(self, losses: Tensor, sizes: int | Tensor) -> None:
        if self._replica.device == CPU:
            super().add_losses(losses, sizes)
        else:
            self._unread.append((losses, int(sizes)))

    def optimise(self, gradient: Tensor, rates: Sequence[float]) -> None:
        local = self.plan.local
        local.optimizer.step(self.parameters, gradient, self.optimizer, rates[0], local.weight_decay)

    def row(self, row: int) -> tuple[Tensor, State]:
        return self.parameters, self.optimizer

    def stack(self, values: Sequence[Tensor]) -> Tensor:
        return values[0]

    def part(self, values: Tensor) -> Tensor:
        return values

    def add(self, total: Tensor | None, value: Tensor) -> Tensor:
        return value if total is None else total + value

    def per_sample(self, total: Tensor) -> Tensor:
        return total / len(self._request.samples)

    def mark(self) -> Tensor:
        return self._replica.dropout.get_state()

    def rewind(self, mark: Tensor | None) -> None:
        assert mark is not None
        self._replica.dropout.set_state(mark)

    def _expect(self, part: str, sizes: Sequence[int]) -> None:
        """Begin a part of the round, with batches of these sizes, in which dropout may need masks."""
        if isinstance(self._replica.dropout, Masks):
            self._replica.dropout.begin(part, sizes)

    def _next(self) -> None:
        if isinstance(self._replica.dropout, Masks):
            self._replica.dropout.next_step()

    def _loaded(
        self, block: Sequence[Drawn], load: Callable[[Draw], tuple[Tensor, Tensor]]
    ) -> Iterator[tuple[Draw, Batch]]:
        """Each step's batch; on a device, many are loaded at once, for fewer kernels."""
        draws = [step.batch for step in block]
        # On the CPU, a batch that was loaded just before its step is still in the cache.
        on_cpu = self._replica.device == CPU
        loaded = map(load, draws) if on_cpu else load_ahead(load, draws, self._replica.dataset.shape)
        for step, (x, labels) in zip(block, loaded, strict=True):
            yield step.batch, self._batch(x, labels)._replace(drawn=step.parts)

    def _batch(self, x: Tensor, labels: Tensor) -> Batch:
        return Batch(x, apply_label_map(labels, self._request.label_map))

    def _one_pass(self, request: TrainRequest) -> Iterator[Draw]:
        """The batches of one pass over the client's samples; none if its method has no data pass."""
        if not request.plan.method.looks_at_data:
            return iter(())
        return draws(one_pass(request), (), self._replica.dataset.shape, key_of(request))


def train_message(message: bytes) -> bytes:
    """One client's round from the bytes of its request to the bytes of its reply."""
    request = TrainRequest.from_bytes(message)
    with intra_op(request.plan.arithmetic.intra_op):
        return reply_to_bytes(Trainer(request.plan, load(request.plan.data))(request))
