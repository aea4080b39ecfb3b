"""Many clients at once: a cohort as a matrix, one client's step vectorised over its rows.

The clients of a chunk are sorted by how many steps they take, so that those still training are always the
first rows of the matrix, and no client computes after its last step. Batches of unequal size are padded and
masked.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from mnemos.client.messages import Arithmetic, Plan, TrainRequest
from mnemos.client.requests import TrainRequests, sizes
from mnemos.client.step import train
from mnemos.client.trainer import fresh_model, has_batch_norm, intra_op
from mnemos.client.workload import workload
from mnemos.common.cores import cores
from mnemos.common.devices import CPU, free_memory, is_out_of_memory, out_of_memory, release_memory
from mnemos.common.pools import compute_pool
from mnemos.common.shapes import blank
from mnemos.data.batches import Loader
from mnemos.data.dataset import Dataset
from mnemos.engines.closed_form import in_closed_form
from mnemos.engines.devices import DeviceEngine, DeviceRunner, Mirror, blame_chunk
from mnemos.engines.engine import Engine, InBlocks, Lost, Runner, Work, engines
from mnemos.engines.rows import Loaders, Rows
from mnemos.engines.threads import one_by_one
from mnemos.engines.together import JointRows, company, kind_of
from mnemos.errors import ConfigError, MnemosError
from mnemos.methods.exchange import TrainReply
from mnemos.methods.replies import TrainReplies
from mnemos.models.buffers import changed_buffers
from mnemos.models.dropout import Dropout
from mnemos.models.functional import Functional
from mnemos.models.trial import trial

_CPU_BYTES = 1e9
"""Bytes of a chunk on the CPU, where larger chunks don't fit into the cache and are no faster."""
_CACHE_BYTES = 6e6
"""The same if gradients are in closed form, whose operations are short enough to be bound by memory."""
_JOINT = 8
"""How many times as much a chunk of several runs may take: fewer calls outweigh a cache that overflows."""
_SHARE = 0.8
"""Share of a device's free memory that a chunk takes."""


@engines.register("vmap")
class Vmap(DeviceEngine):
    """Many clients at once by `torch.func.vmap`; fast for small models, where calls cost more than sums."""

    memory: float | None = Field(
        None, gt=0, description="gigabytes a chunk of clients may take; null: 1, or what a device has free"
    )
    intra_op: int = Field(1, ge=1, description="threads inside one tensor operation; more for larger models")
    chunk: int = Field(0, ge=0, description="clients at once; 0: as many as fit into `memory`")

    @model_validator(mode="after")
    def _not_exact(self) -> Vmap:
        if self.exact:
            raise ValueError("vmap changes the last bits, which 'exact: true' forbids")
        return self

    def arithmetic(self) -> Arithmetic:
        """Batched products add up in another order."""
        return self.on_device(Arithmetic(channels_last=False, intra_op=self.intra_op, vmap=True))

    def open(self, plan: Plan, dataset: Dataset, work: Work) -> Runner:
        """One replica, whose parameters are replaced by rows of the cohort's matrix."""
        optimizer = type(plan.local.optimizer)
        if not optimizer.vectorised:
            runner = one_by_one(work, self).open(plan, dataset, work)
            runner.why = f"vmap can't run the optimizer '{optimizer.name}', whose clients train one by one"
            return runner
        return VmapRunner(self, self.planned(plan), dataset)


def has_short_steps(plan: Plan, dataset: Dataset) -> bool:
    """Whether all gradients of a client's round are in closed form, so that no step calls the module itself.

    Threads share the module, and each call puts a client's tensors into it.
    """
    method = plan.method
    calls = method.looks_at_data or method.uses("after_step") or method.correction.traced is not None
    return not calls and in_closed_form(plan, Functional(fresh_model(plan, dataset)), dataset.shape)


class _Replica(NamedTuple):
    """What trains chunks on one device."""

    functional: Functional
    loaders: Loaders


class VmapRunner(DeviceRunner):
    """Trains chunk after chunk of a cohort, on the devices in turn."""

    def _prepare(self, engine: Vmap, dataset: Dataset) -> None:
        plan = self.plan
        self._options, self._dataset = engine, dataset
        module = fresh_model(plan, dataset).train()
        if any(isinstance(part, Dropout) for part in module.modules()):
            raise ConfigError("vmap can't run a model with dropout; allowed: auto, serial, threads", "engine")
        self._batch_norm = has_batch_norm(module)
        self._layout = Functional(module).layout  # which also replaces batch-norm by its masked form
        changed = changed_buffers(module, dataset.shape, training=True)
        if changed:
            raise ConfigError(
                f"vmap can't run a model that changes its buffer '{changed[0]}' in training; "
                "allowed: auto, serial, threads",
                "engine",
            )
        self._per_sample, self._per_client = self._sizes(module)
        self._replicas = [self._replica(device) for device in self.devices]
        self._short = self.devices[0] == CPU and has_short_steps(plan, dataset)
        """Whether it pays to have small chunks, and to train several at a time."""
        workers = cores() // plan.arithmetic.intra_op if self._short else 1
        self._workers, self._pool = workers, compute_pool(workers, "mnemos vmap") if workers > 1 else None
        if self.devices[0] != CPU and not engine.chunk and plan.method.correction.traced is None:
            # A number that is on record, and not what happens to be free when the run goes on.
            each = self._per_sample * plan.local.batch + self._per_client
            self._remember(max(1, int(self._memory() // each)))

    def _let_go(self) -> None:
        self._replicas = []
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(self, cohort: Iterable[TrainRequest]) -> Iterator[TrainReply | Lost]:
        """The updates of a cohort, chunk after chunk.

        If a device runs out of memory, chunks are halved for the clients that are left. If that happens in
        the first chunk, the result is the same as with the smaller chunks from the start.
        """
        return InBlocks(self._blocks(cohort))

    def _blocks(self, cohort: Iterable[TrainRequest]) -> Iterator[TrainReplies]:
        beside = company() if self._short else None
        if beside is None:
            yield from self.train_alone(cohort)
        else:
            yield beside.train(self, list(cohort))

    def train_alone(self, cohort: Iterable[TrainRequest]) -> Iterator[TrainReplies]:
        """The same without those of runs that go on beside this one."""
        cohort = cohort if isinstance(cohort, TrainRequests) else list(cohort)
        with intra_op(self.plan.arithmetic.intra_op):
            if self._pool is not None:
                yield from self._on_threads(self._pool, cohort)
                return
            if self.devices[0] == CPU:
                yield from self._trained(cohort, [], self._options.chunk)
                return
            through, most, whole = 0, self._options.chunk, 0
            while through < len(cohort):
                refused, begun = "", list[int]()
                try:
                    for replies in self._trained(cohort[through:], begun, most):
                        through += len(replies)
                        whole = max(whole, *begun)  # replies come when all that were begun are through
                        yield replies
                except RuntimeError as error:
                    if not is_out_of_memory(error):
                        raise
                    refused = out_of_memory(error)
                if refused:  # not inside `except`, where the error still holds what has been allocated
                    most = self._halve(begun[-1], whole, refused)
                    whole = whole if begun[-1] > 1 else 0

    def _on_threads(self, pool: ThreadPoolExecutor, cohort: Sequence[TrainRequest]) -> Iterator[TrainReplies]:
        """The updates of a cohort; several chunks are trained at a time, each by one thread.

        Only for gradients in closed form: `vmap` and autograd hold Python's lock for most of the time.
        """
        waiting: deque[tuple[Sequence[TrainRequest], Future[TrainReplies]]] = deque()

        def trained(chunk: Sequence[TrainRequest]) -> TrainReplies:
            return train(self._rows(self._replicas[0], chunk))

        def first() -> TrainReplies:
            chunk, future = waiting.popleft()
            try:
                return future.result()
            except Exception as error:  # raised again, with the client's number
                blame_chunk(chunk, error, lambda alone: trained([alone]))

        try:
            for chunk in self._chunks(cohort, self._options.chunk):
                waiting.append((chunk, pool.submit(trained, chunk)))
                if len(waiting) > 2 * self._workers:
                    yield first()
            while waiting:
                yield first()
        finally:
            for _, future in waiting:
                future.cancel()

    def agree(self, others: Sequence[Engine]) -> None:
        """Use no more clients at once than runners of other models do."""
        least = min((other.chunk for other in others if isinstance(other, Vmap)), default=0)
        if least != self._options.chunk:
            self._remember(least)

    def _halve(self, failed: int, whole: int, refused: str) -> int:
        """Half of the clients in the chunk that failed, which those that are left in the round train by.

        Later rounds have half of it, too, unless larger chunks were trained in the same round: then memory
        is nearly enough, and they have half of the largest. `whole` is how many clients that has, `refused`
        what the device has said.
        """
        if failed == 1 and whole < 2:
            raise MnemosError(
                f"{refused} for a single client; engine.device=cpu, a smaller local.batch or a smaller model "
                "needs less"
            )
        for device in self.devices:
            release_memory(device)
        self._remember(max(failed, whole) // 2)
        return max(1, failed // 2)

    def _remember(self, chunk: int) -> None:
        """Use this number of clients at once from now on; it is kept in the run's record, and on resume."""
        self._options = self._options.model_copy(update={"chunk": chunk})
        self.engine = self._options.settled()

    def _trained(self, cohort: Sequence[TrainRequest], begun: list[int], most: int) -> Iterator[TrainReplies]:
        """The updates of a cohort; the sizes of chunks that are begun, up to `most`, are added to `begun`."""
        mirrors = [Mirror(device) for device in self.devices]

        def begin(device: int, chunk: Sequence[TrainRequest]) -> Rows:
            begun.append(len(chunk))
            first, mirror = chunk[0], mirrors[device]
            there = mirror(first) is first
            return self._rows(self._replicas[device], chunk if there else [*map(mirror, chunk)])

        return self.train_in_turn(self._chunks(cohort, most), begin, len(self.devices))

    def _replica(self, device: torch.device) -> _Replica:
        module = fresh_model(self.plan, self._dataset).train().to(device)
        augmented, plain = (
            # In the order of axes that models have by default: vmap knows no other.
            Loader(self._dataset, augment, channels_last=False, device=device)
            for augment in (self.plan.local.augment, ())
        )
        return _Replica(Functional(module), Loaders(augmented, plain))

    def _rows(self, replica: _Replica, requests: Sequence[TrainRequest]) -> Rows:
        return Rows(self.plan, self._dataset, replica.functional, requests, replica.loaders, self._batch_norm)

    # beside other runs

    @cached_property
    def kind(self) -> Hashable | None:
        """What runs have in common whose cohorts can be trained as one; None: this one's train alone."""
        return kind_of(self.plan, self._dataset) if self._short else None

    def joint(self, requests: list[TrainRequest]) -> JointRows:
        """The clients of several runs of this kind."""
        functional, loaders = self._replicas[0]
        return JointRows(self.plan, self._dataset, functional, requests, loaders, self._batch_norm)

    @cached_property
    def row_step(self) -> int:
        """What the number of a run's rows must be a multiple of in a matrix of several runs.

        MKL's products take other kernels for matrices that don't begin at 16 bytes, and those round
        differently. So every run begins where a matrix of its own would, in all matrices of a step.
        """
        widths = (slot.shape[0] for slot in self._layout.parameters)
        return 4 // math.gcd(4, self._layout.size, *widths)

    def fitting(self, request: TrainRequest) -> int:
        """How many clients like this one a chunk of several runs may have."""
        each = self._per_sample * min(self.plan.local.batch, len(request.samples)) + self._per_client
        return self._options.chunk or int(_JOINT * self._memory() // each)

    def _memory(self) -> float:
        """Bytes that a chunk may take."""
        if self._options.memory is not None:
            return self._options.memory * 1e9
        free = [free_memory(device) for device in self.devices]
        known = [some for some in free if some is not None]
        return _SHARE * min(known) if known else _CACHE_BYTES if self._short else _CPU_BYTES

    def _chunks(self, cohort: Sequence[TrainRequest], most: int) -> Iterator[Sequence[TrainRequest]]:
        """`most` clients at a time, or as many as fit into memory if it is 0."""
        if not len(cohort):
            return
        memory, widths = self._memory(), np.minimum(sizes(cohort), self.plan.local.batch)
        traced = np.zeros(len(cohort))
        if self.plan.method.correction.traced is not None:
            traced = np.array([self._traced(request) for request in cohort], float)
        begin = 0
        while begin < len(cohort):
            # What the clients from `begin` to each of the others need: as much as the largest of them, each.
            widest, longest = (np.maximum.accumulate(values[begin:]) for values in (widths, traced))
            each = self._per_sample * widest + self._per_client + longest
            fitting = int(np.searchsorted(np.arange(1, len(each) + 1) * each, memory, side="right"))
            end = begin + max(1, most or fitting)
            yield cohort[begin:end]
            begin = end

    def _traced(self, request: TrainRequest) -> int:
        """Bytes of a client's traced steps: the parameters and the batch of each."""
        layout, inputs = self._layout, math.prod(self._dataset.shape) * request.plan.local.batch
        return 4 * workload(request, self._batch_norm).total * (layout.size + layout.buffer_size + inputs)

    def _sizes(self, module: nn.Module) -> tuple[int, int]:
        """Bytes that one sample of a batch, and one client, take in a step."""
        numbers = 0

        def count(_module: nn.Module, _inputs: Any, output: Any) -> None:
            nonlocal numbers
            numbers += output.numel() if isinstance(output, Tensor) else 0

        layout = self._layout
        with trial(module, training=True) as twin:
            for part in twin.modules():
                if not list(part.children()):
                    part.register_forward_hook(count)
            twin(blank(self._dataset.shape))
        # Activations are kept for the backward pass, and most layers need a second copy of theirs there.
        state = sum(tensor.numel() for tensor in self.plan.method.client_state(layout).values())
        moments = self.plan.local.optimizer.init(layout.zeros(), layout).values()
        # One of the five vectors is for a momentum.
        state += max(0, sum(tensor.numel() for tensor in moments) - layout.size)
        turns = self.plan.method.head.outputs
        return 4 * 2 * (numbers // 2) * turns, 4 * (5 * (layout.size + layout.buffer_size) + state)
