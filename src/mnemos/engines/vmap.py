"""Many clients at once: a cohort as a matrix, one client's step vectorised over its rows.

The clients of a chunk are sorted by how many steps they take, so that those still training are always the
first rows of the matrix, and nobody computes after its last step. Batches of unequal size are padded and
masked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from mnemos.client import finish, fresh_model, has_batch_norm, intra_op, ration, view
from mnemos.data.batches import Draw, Key, Loader, Ration, draws, join, order
from mnemos.data.dataset import Dataset
from mnemos.engines.batchnorm import mask_batch_norm
from mnemos.engines.engine import Engine, Runner, Work, blame, engines
from mnemos.engines.rows import Rows, stack
from mnemos.errors import ConfigError
from mnemos.message import Arithmetic, Plan, Task
from mnemos.methods.method import Client, State, Update
from mnemos.models.buffers import changed_buffers
from mnemos.models.dropout import Dropout
from mnemos.models.features import features_and_logits
from mnemos.vector import Layout


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
        plan = plan.model_copy(update={"arithmetic": self.arithmetic()})
        return VmapRunner(self, plan, dataset)


class _Row:
    """A replica with one client's parameters, as the function a method sees."""

    def __init__(self, module: nn.Module, tensors: State) -> None:
        self._module = module
        self._tensors = tensors

    def __call__(self, x: Tensor) -> Tensor:
        logits: Tensor = functional_call(self._module, self._tensors, (x,))
        return logits

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        both: tuple[Tensor, Tensor] = functional_call(_Both(self._module), _under(self._tensors), (x,))
        return both


class _Both(nn.Module):
    """Features and logits as a module's forward, so that `functional_call` can reach them."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return features_and_logits(self.inner, x)


def _under(tensors: State) -> State:
    return {f"inner.{name}": tensor for name, tensor in tensors.items()}


class _Batch(NamedTuple):
    """One step: input [K, B, …], labels [K, B], which samples are real [K, B] (None: all), sizes [K]."""

    x: Tensor
    labels: Tensor
    mask: Tensor | None
    sizes: Tensor


class VmapRunner(Runner):
    """Trains chunk after chunk of a cohort."""

    def __init__(self, engine: Vmap, plan: Plan, dataset: Dataset) -> None:
        super().__init__(engine, plan)
        self._module = fresh_model(plan, dataset).train()
        if any(isinstance(part, Dropout) for part in self._module.modules()):
            raise ConfigError("vmap can't run a model with dropout; allowed: auto, serial, threads", "engine")
        self._layout = Layout.of(self._module)
        self._batch_norm = has_batch_norm(self._module)
        self._norms = mask_batch_norm(self._module)
        changed = changed_buffers(self._module, dataset.shape)
        if changed:
            raise ConfigError(
                f"vmap can't run a model that changes its buffer '{changed[0]}' in training; "
                "allowed: auto, serial, threads",
                "engine",
            )
        self._dataset = dataset
        self._loader = Loader(dataset, plan.local.augment, plan.arithmetic.channels_last)
        self._chunk = engine.chunk or self._fitting(engine.memory * 1e9)

    def run(self, cohort: Iterable[Task]) -> Iterator[Update]:
        """The updates of a cohort, chunk after chunk."""
        tasks = iter(cohort)
        with intra_op(self.plan.arithmetic.intra_op):
            while chunk := list(islice(tasks, self._chunk)):
                try:
                    updates = self._train(chunk)
                except Exception as error:  # named, and raised again
                    blame(chunk[0], error)
                yield from updates

    @torch.no_grad()
    def _train(self, tasks: list[Task]) -> list[Update]:
        """The updates of one chunk, in its order."""
        plan, optimizer = self.plan, self.plan.local.optimizer
        rations = [ration(task, self._batch_norm) for task in tasks]
        rank = sorted(range(len(tasks)), key=lambda k: -rations[k].total)
        clients = [view(task, self._dataset.train.labels, len(self._dataset.classes)) for task in tasks]
        stacked, dims = stack([clients[k] for k in rank])
        keys = [(plan.seed, tasks[k].round, tasks[k].client) for k in rank]
        feed = self._feed([rations[k] for k in rank], keys)
        parameters = torch.stack([tasks[k].model for k in rank])
        buffers = torch.stack([tasks[k].buffers for k in rank])
        state = vmap(optimizer.init)(parameters)
        losses, seen = torch.zeros(len(tasks)), torch.zeros(len(tasks))
        for step in range(rations[rank[0]].total):
            active = sum(rations[k].total > step for k in rank)
            x, labels, mask, sizes = next(feed)
            rows = Rows(active, stacked, dims)
            gradients, loss, new = self._gradients(
                rows, parameters[:active], buffers[:active], x, labels, mask
            )
            buffers[:active] = new
            gradients = self._correct(rows, gradients, parameters[:active])
            self._step(parameters[:active], gradients, {name: t[:active] for name, t in state.items()})
            losses[:active] += loss * sizes
            seen[:active] += sizes
        updates: dict[int, Update] = {}
        for row, k in enumerate(rank):
            mean = float(losses[row] / seen[row])
            # Copies: a client's memory must not keep the whole cohort's matrix alive.
            end, statistics = parameters[row].clone(), buffers[row].clone()
            updates[k] = finish(tasks[k], clients[k], end, statistics, rations[k].total, mean)
        return [updates[k] for k in range(len(tasks))]

    def _correct(self, rows: Rows, gradients: Tensor, parameters: Tensor) -> Tensor:
        method = self.plan.method
        if not method.corrects:
            return gradients
        corrected: Tensor = rows.apply(method.correct, gradients, parameters)
        return corrected

    def _step(self, parameters: Tensor, gradients: Tensor, state: State) -> None:
        local = self.plan.local

        def step(parameters: Tensor, gradient: Tensor, state: State) -> Tensor:
            local.optimizer.step(parameters, gradient, state, local.lr, local.weight_decay)
            return parameters

        if local.optimizer.elementwise:
            step(parameters, gradients, state)
        else:
            vmap(step)(parameters, gradients, state)

    def _feed(self, rations: list[Ration], keys: list[Key]) -> Iterator[_Batch]:
        """The batches of every step, for the clients still training in it (the first ones)."""
        first, augment = rations[0], self.plan.local.augment
        alike = all(r.epoch == first.epoch and r.total == first.total and not r.noise for r in rations)
        if alike and not augment:
            # The whole round's indices as one matrix: a step is a few of its columns.
            rows = [r.samples[order(r, key)] for r, key in zip(rations, keys, strict=True)]
            sizes = (first.epoch * first.passes)[: first.total]
            for columns in torch.stack(rows)[:, : sum(sizes)].split(sizes, 1):  # type: ignore[no-untyped-call]
                yield self._load(columns.flatten(), torch.full((len(rations),), columns.shape[1]))
            return
        feeds = [draws(r, augment, self._dataset.shape, key) for r, key in zip(rations, keys, strict=True)]
        for step in range(first.total):
            batches = [next(feed) for feed, r in zip(feeds, rations, strict=True) if r.total > step]
            yield self._load(join(batches), torch.tensor([len(batch) for batch in batches]))

    def _load(self, batch: Draw | Tensor, sizes: Tensor) -> _Batch:
        """One step's input from the clients' batches laid end to end; short ones are filled up."""
        x, labels = self._loader(batch if isinstance(batch, Draw) else Draw(batch, batch))
        width = int(sizes.max())
        if int(sizes.min()) == width:
            shape = (len(sizes), width)
            return _Batch(x.view(*shape, *x.shape[1:]), labels.view(shape), None, sizes)
        mask = torch.arange(width) < sizes[:, None]
        # Short batches are filled up with their own first sample: zeros could be anything to a model, also
        # a division by zero, and not even a weight of zero heals a NaN.
        starts = sizes.cumsum(0) - sizes
        source = torch.where(mask, starts[:, None] + torch.arange(width), starts[:, None])
        return _Batch(x[source], labels[source], mask.float(), sizes)

    def _gradients(
        self, rows: Rows, parameters: Tensor, buffers: Tensor, x: Tensor, labels: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients [K, P], losses [K] and new buffers [K, Q] of one batch a client."""

        def loss_of(
            parameters: Tensor,
            buffers: Tensor,
            x: Tensor,
            labels: Tensor,
            mask: Tensor | None,
            client: Client,
        ) -> tuple[Tensor, Tensor]:
            for norm in self._norms.values():
                norm.mask, norm.updated = mask, {}
            tensors = {**self._layout.views(parameters), **self._layout.buffer_views(buffers)}
            losses = self.plan.method.batch_loss(_Row(self._module, tensors), x, labels, client)
            loss = losses.mean() if mask is None else (losses * mask).sum() / mask.sum()
            return loss, self._new_buffers(tensors, buffers)

        gradients, (losses, new) = rows.apply(
            grad_and_value(loss_of, has_aux=True), parameters, buffers, x, labels, mask
        )
        return gradients, losses, new

    def _new_buffers(self, tensors: State, buffers: Tensor) -> Tensor:
        if not self._norms:
            return buffers
        new = dict(tensors)
        for name, norm in self._norms.items():
            new.update({f"{name}.{leaf}": value for leaf, value in norm.updated.items()})
            norm.mask, norm.updated = None, {}
        return torch.cat([new[slot.name].reshape(-1) for slot in self._layout.buffers])

    def _fitting(self, limit: float) -> int:
        """How many clients fit into a memory limit, from the size of one sample's activations."""
        numbers = 0

        def count(_module: nn.Module, _inputs: Any, output: Any) -> None:
            nonlocal numbers
            numbers += output.numel() if isinstance(output, Tensor) else 0

        leaves = [part for part in self._module.modules() if not list(part.children())]
        hooks = [part.register_forward_hook(count) for part in leaves]
        with torch.no_grad():
            self._module(torch.zeros(2, *self._dataset.shape))
        for hook in hooks:
            hook.remove()
        # Activations are kept for the backward pass and most layers need a second copy of theirs there.
        activations = 2 * (numbers // 2) * self.plan.local.batch
        vectors = 5 * (self._layout.size + self._layout.buffer_size)
        return max(1, int(limit / (4 * (activations + vectors))))
