"""Many clients at once: a cohort as a matrix, one client's step vectorised over its rows.

The clients of a chunk are sorted by how many steps they take, so that those still training are always the
first rows of the matrix, and no client computes after its last step. Batches of unequal size are padded and
masked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from mnemos.client.messages import Arithmetic, Plan, TrainRequest
from mnemos.client.step import train
from mnemos.client.trainer import fresh_model, has_batch_norm, intra_op
from mnemos.client.workload import workload
from mnemos.data.dataset import Dataset
from mnemos.engines.engine import ClientError, Engine, Runner, Work, blame, engines
from mnemos.engines.rows import Rows
from mnemos.engines.threads import one_by_one
from mnemos.errors import ConfigError, MnemosError
from mnemos.methods.exchange import TrainReply
from mnemos.models.buffers import changed_buffers
from mnemos.models.dropout import Dropout
from mnemos.models.functional import Functional
from mnemos.models.trial import trial


@engines.register("vmap")
class Vmap(Engine):
    """Many clients at once by `torch.func.vmap`; fast for small models, where calls cost more than sums."""

    memory: float = Field(1.0, gt=0, description="gigabytes a chunk of clients may take")
    intra_op: int = Field(1, ge=1, description="threads inside one tensor operation; more for larger models")
    chunk: int = Field(0, ge=0, description="clients at once; 0: as many as fit into `memory`")

    @model_validator(mode="after")
    def _not_exact(self) -> Vmap:
        if self.exact:
            raise ValueError("vmap changes the last bits, which 'exact: true' forbids")
        return self

    def arithmetic(self) -> Arithmetic:
        """Batched products add up in another order."""
        return Arithmetic(channels_last=False, intra_op=self.intra_op, vmap=True)

    def open(self, plan: Plan, dataset: Dataset, work: Work) -> Runner:
        """One replica, whose parameters are replaced by rows of the cohort's matrix."""
        optimizer = type(plan.local.optimizer)
        if not optimizer.vectorised:
            runner = one_by_one(work).open(plan, dataset, work)
            runner.why = f"vmap can't run the optimizer '{optimizer.name}', whose clients train one by one"
            return runner
        plan = plan.model_copy(update={"arithmetic": self.arithmetic()})
        return VmapRunner(self, plan, dataset)


class VmapRunner(Runner):
    """Trains chunk after chunk of a cohort."""

    def __init__(self, engine: Vmap, plan: Plan, dataset: Dataset) -> None:
        super().__init__(engine, plan)
        module = fresh_model(plan, dataset).train()
        if any(isinstance(part, Dropout) for part in module.modules()):
            raise ConfigError("vmap can't run a model with dropout; allowed: auto, serial, threads", "engine")
        self._batch_norm = has_batch_norm(module)
        self._functional = Functional(module)
        changed = changed_buffers(module, dataset.shape, training=True)
        if changed:
            raise ConfigError(
                f"vmap can't run a model that changes its buffer '{changed[0]}' in training; "
                "allowed: auto, serial, threads",
                "engine",
            )
        self._dataset = dataset
        self._chunk, self._memory = engine.chunk, engine.memory * 1e9
        self._per_sample, self._per_client = self._sizes()

    def run(self, cohort: Iterable[TrainRequest]) -> Iterator[TrainReply]:
        """The updates of a cohort, chunk after chunk."""
        with intra_op(self.plan.arithmetic.intra_op):
            for chunk in self._chunks(cohort):
                try:
                    updates = self._train(chunk)
                except Exception as error:  # raised again, with the client's number
                    self._blame(chunk, error)
                yield from updates

    def _blame(self, chunk: list[TrainRequest], error: Exception) -> NoReturn:
        """Raise a chunk's error again: as that of the first client that also fails alone, or as that of all.

        A chunk may fail as a whole, for want of memory for instance.
        """
        if isinstance(error, MnemosError):
            raise error
        for request in chunk:
            try:
                self._train([request])
            except Exception as own:  # raised again, with the client's number
                blame(request, own)
        clients = ", ".join(str(request.client) for request in chunk)
        raise ClientError(
            f"clients {clients} failed together in round {chunk[0].round}, and none of them alone: "
            f"{type(error).__name__}: {error}; a smaller engine.chunk may help"
        ) from error

    def _train(self, requests: list[TrainRequest]) -> list[TrainReply]:
        """The updates of one chunk, in its order."""
        rows = Rows(self.plan, self._dataset, self._functional, requests, self._batch_norm)
        replies = dict(zip(rows.order, train(rows), strict=True))
        return [replies[k] for k in range(len(requests))]

    def _chunks(self, cohort: Iterable[TrainRequest]) -> Iterator[list[TrainRequest]]:
        """As many clients at a time as asked for, or as fit into memory."""
        chunk: list[TrainRequest] = []
        width = 0
        for request in cohort:
            wider = max(width, min(self.plan.local.batch, len(request.samples)))
            each = self._per_client + self._traced(request)
            bytes_needed = (len(chunk) + 1) * (self._per_sample * wider + each)
            full = len(chunk) == self._chunk if self._chunk else bytes_needed > self._memory
            if chunk and full:
                yield chunk
                chunk, wider = [], min(self.plan.local.batch, len(request.samples))
            chunk.append(request)
            width = wider
        if chunk:
            yield chunk

    def _traced(self, request: TrainRequest) -> int:
        """Bytes of a client's steps, if they are traced: where each started, and its batch."""
        if self.plan.method.correction.traced is None:
            return 0
        layout, inputs = self._functional.layout, math.prod(self._dataset.shape) * request.plan.local.batch
        return 4 * workload(request, self._batch_norm).total * (layout.size + layout.buffer_size + inputs)

    def _sizes(self) -> tuple[int, int]:
        """Bytes that one sample of a batch, and one client, take in a step."""
        numbers = 0

        def count(_module: nn.Module, _inputs: Any, output: Any) -> None:
            nonlocal numbers
            numbers += output.numel() if isinstance(output, Tensor) else 0

        layout = self._functional.layout
        with trial(self._functional.module, training=True) as twin:
            for part in twin.modules():
                if not list(part.children()):
                    part.register_forward_hook(count)
            twin(torch.zeros(2, *self._dataset.shape))
        # Activations are kept for the backward pass, and most layers need a second copy of theirs there.
        state = sum(tensor.numel() for tensor in self.plan.method.client_state(layout).values())
        moments = self.plan.local.optimizer.init(layout.zeros(), layout).values()
        # One of the five vectors is for a momentum.
        state += max(0, sum(tensor.numel() for tensor in moments) - layout.size)
        turns = self.plan.method.head.outputs
        return 4 * 2 * (numbers // 2) * turns, 4 * (5 * (layout.size + layout.buffer_size) + state)
