"""Many clients at once: a cohort as a matrix, one client's step vectorised over its rows.

The clients of a chunk are sorted by how many steps they take, so that those still training are always the
first rows of the matrix, and nobody computes after its last step. Batches of unequal size are padded and
masked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.func import grad_and_value, vmap

from mnemos.client import (
    begin,
    each,
    finish,
    fresh_model,
    has_batch_norm,
    intra_op,
    once,
    random,
    rates,
    ration,
    view,
)
from mnemos.data.augment import Augmentation
from mnemos.data.batches import Draw, Key, Loader, Ration, believed, draws, join, order
from mnemos.data.dataset import Dataset
from mnemos.engines.engine import Engine, Runner, Work, blame, engines
from mnemos.engines.rows import Rows, stack
from mnemos.engines.threads import one_by_one
from mnemos.errors import ConfigError
from mnemos.message import Arithmetic, Plan, Task
from mnemos.methods.exchange import Batch, Client, State, Update, When
from mnemos.models.buffers import changed_buffers
from mnemos.models.dropout import Dropout
from mnemos.models.functional import Functional
from mnemos.optim.optimizer import Rate


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


class _Step(NamedTuple):
    """One step of all clients: input [K, B, …], labels [K, B], mask [K, B] (None: all are samples)."""

    batch: Batch
    sizes: Tensor
    """How many samples each client has in it [K]."""


class _Traced(NamedTuple):
    """A step that can be traced back: where its clients started, their batches and rates."""

    rows: Rows
    parameters: Tensor
    buffers: Tensor
    batch: Batch
    lr: Rate


class VmapRunner(Runner):
    """Trains chunk after chunk of a cohort."""

    def __init__(self, engine: Vmap, plan: Plan, dataset: Dataset) -> None:
        super().__init__(engine, plan)
        module = fresh_model(plan, dataset).train()
        if any(isinstance(part, Dropout) for part in module.modules()):
            raise ConfigError("vmap can't run a model with dropout; allowed: auto, serial, threads", "engine")
        self._batch_norm = has_batch_norm(module)
        self._functional = Functional(module)
        changed = changed_buffers(module, dataset.shape)
        if changed:
            raise ConfigError(
                f"vmap can't run a model that changes its buffer '{changed[0]}' in training; "
                "allowed: auto, serial, threads",
                "engine",
            )
        self._dataset = dataset
        self._chunk, self._memory = engine.chunk, engine.memory * 1e9
        self._per_sample, self._per_client = self._sizes()

    def run(self, cohort: Iterable[Task]) -> Iterator[Update]:
        """The updates of a cohort, chunk after chunk."""
        with intra_op(self.plan.arithmetic.intra_op):
            for chunk in self._chunks(cohort):
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
        parameters = torch.stack([tasks[k].model for k in rank])
        buffers = torch.stack([tasks[k].buffers for k in rank])
        passes = [once(tasks[k]) for k in rank]
        surveyed = self._survey("start", stacked, dims, parameters, buffers, passes, keys)
        layout, local = self._functional.layout, plan.local
        paces = [rates(tasks[k], rations[k]) for k in rank]
        state = _together([begin(tasks[k], parameters[row], layout) for row, k in enumerate(rank)])
        steps = [each(pace) for pace in paces]
        ends = [frozenset(rations[k].ends) if optimizer.counts_epochs else frozenset() for k in rank]
        losses, seen = torch.zeros(len(tasks)), torch.zeros(len(tasks))
        trace: list[_Traced] = []
        feed = self._feed([rations[k] for k in rank], keys, local.augment)
        generators = [random(tasks[k]) for k in rank]
        for number, (batch, sizes) in enumerate(feed):
            active = len(sizes)
            batch = plan.method.head.turned(batch, 1)
            if plan.method.draws:
                drawn = [plan.method.draw(local.batch, layout, own) for own in generators[:active]]
                batch = batch._replace(drawn=_together(drawn))
            rows = Rows(active, stacked, dims)
            here, statistics = parameters[:active], buffers[:active]
            lr = _rate([pace[number] for pace in steps[:active]])
            if plan.method.traced:
                trace.append(_Traced(rows, here.clone(), statistics.clone(), batch, lr))
            gradients, loss, new = self._gradients(rows, here, statistics, batch)
            gradients = self._correct(rows, gradients, here)
            self._step(here, gradients, {name: t[:active] for name, t in state.items()}, lr)
            self._settle(rows, here, statistics, batch)
            buffers[:active] = new
            for row in range(active):
                if number + 1 in ends[row]:
                    optimizer.epoch(parameters[row], _row(state, row), layout, local.lr)
            losses[:active] += loss * sizes
            seen[:active] += sizes
        surveyed |= self._survey("end", stacked, dims, parameters, buffers, passes, keys)
        for name in plan.method.traced:
            surveyed[name] = self._pull_back(surveyed[name], trace)
        updates: dict[int, Update] = {}
        for row, k in enumerate(rank):
            mean = float(losses[row] / seen[row])
            # Copies: a client's memory must not keep the whole cohort's matrix alive.
            end, statistics = parameters[row].clone(), buffers[row].clone()
            found, after = (
                {name: value.clone() for name, value in _row(values, row).items()}
                for values in (surveyed, state)
            )
            updates[k] = finish(tasks[k], clients[k], end, statistics, paces[row], mean, found, after)
        return [updates[k] for k in range(len(tasks))]

    def _correct(self, rows: Rows, gradients: Tensor, parameters: Tensor) -> Tensor:
        method = self.plan.method
        if not method.corrects:
            return gradients
        corrected: Tensor = rows.apply(method.correct, gradients, parameters)
        return corrected

    def _step(self, parameters: Tensor, gradients: Tensor, state: State, lr: Rate) -> None:
        local = self.plan.local

        def step(parameters: Tensor, gradient: Tensor, state: State, lr: Rate) -> Tensor:
            local.optimizer.step(parameters, gradient, state, lr, local.weight_decay)
            return parameters

        if local.optimizer.elementwise:
            step(parameters, gradients, state, lr)
        else:
            by_row = 0 if isinstance(lr, Tensor) else None
            vmap(step, in_dims=(0, 0, 0, by_row))(parameters, gradients, state, lr)

    def _settle(self, rows: Rows, parameters: Tensor, buffers: Tensor, batch: Batch) -> None:
        method = self.plan.method
        if not method.settles:
            return

        def settle(parameters: Tensor, buffers: Tensor, batch: Batch, client: Client) -> Tensor:
            with self._functional.masked(batch.mask):
                net = self._functional.net(parameters, buffers)
                return method.settle(parameters, net, batch, client)

        parameters.copy_(rows.apply(settle, parameters, buffers, batch))

    def _pull_back(self, vectors: Tensor, trace: list[_Traced]) -> Tensor:
        """Gradients at the end of the clients' steps, as ones of the models they received."""

        def pull_back(
            vector: Tensor, parameters: Tensor, rate: Tensor, buffers: Tensor, batch: Batch, client: Client
        ) -> Tensor:
            with self._functional.masked(batch.mask):
                net = self._functional.net(parameters, buffers)
                return self.plan.method.pull_back(vector, parameters, rate, net, batch, client)

        for step in reversed(trace):
            active = len(step.parameters)
            rates = torch.empty(active, 2)
            rates[:, :1], rates[:, 1] = step.lr, self.plan.local.weight_decay
            vectors[:active] = step.rows.apply(
                pull_back, vectors[:active], step.parameters, rates, step.buffers, step.batch
            )
        return vectors

    def _survey(
        self,
        when: When,
        stacked: Client,
        dims: Client,
        parameters: Tensor,
        buffers: Tensor,
        rations: list[Ration],
        keys: list[Key],
    ) -> State:
        """What the method's parts find in a pass over each client's samples, as means [K, …]."""
        method = self.plan.method
        if not method.surveys(when):
            return {}

        def survey(parameters: Tensor, buffers: Tensor, batch: Batch, client: Client) -> State:
            mask = batch.mask
            if mask is not None:
                # Who is through has empty batches, in which batch-norm would find nothing to measure.
                mask = torch.where(mask.sum() > 0, mask, 1.0)
            with self._functional.masked(mask):
                net = self._functional.net(parameters, buffers)
                return method.survey(when, parameters, net, method.head.upright(batch), client)

        sizes = torch.tensor([len(r.samples) for r in rations])
        sums: State = {}
        with self._functional.training(when == "start"):
            for batch, present in self._feed(rations, keys, ()):
                active = len(present)
                rows = Rows(active, stacked, dims)
                found = rows.apply(survey, parameters[:active], buffers[:active], batch)
                for name, value in found.items():
                    total = sums.setdefault(name, value.new_zeros(len(sizes), *value.shape[1:]))
                    total[:active] += value
        return {name: value / sizes.view(-1, *[1] * (value.ndim - 1)) for name, value in sums.items()}

    def _feed(
        self, rations: list[Ration], keys: list[Key], augment: Sequence[Augmentation]
    ) -> Iterator[_Step]:
        """The batches of every step, with labels as each client has them."""
        loaded = self._loaded(rations, keys, augment)
        if all(r.relabel is None for r in rations):
            return loaded
        classes = torch.arange(len(self._dataset.classes))
        maps = torch.stack([believed(classes, r.relabel) for r in rations])
        return (
            _Step(batch._replace(labels=maps[: len(sizes)].gather(1, batch.labels)), sizes)
            for batch, sizes in loaded
        )

    def _loaded(
        self, rations: list[Ration], keys: list[Key], augment: Sequence[Augmentation]
    ) -> Iterator[_Step]:
        """The batches of every step, for the clients up to the last that has one; others' are empty."""
        first, loader = rations[0], Loader(self._dataset, augment, self.plan.arithmetic.channels_last)
        alike = all(r.epoch == first.epoch and r.total == first.total and not r.noise for r in rations)
        if alike and not augment:
            # The whole round's indices as one matrix: a step is a few of its columns.
            rows = [r.samples[order(r, key)] for r, key in zip(rations, keys, strict=True)]
            sizes = (first.epoch * first.passes)[: first.total]
            for columns in torch.stack(rows)[:, : sum(sizes)].split(sizes, 1):  # type: ignore[no-untyped-call]
                flat = columns.flatten()
                yield _filled(loader(Draw(flat, flat)), torch.full((len(rations),), columns.shape[1]))
            return
        feeds = [draws(r, augment, self._dataset.shape, key) for r, key in zip(rations, keys, strict=True)]
        for _ in range(max(r.total for r in rations)):
            batches = [next(feed, None) for feed in feeds]
            while batches[-1] is None:
                batches.pop()
            count = torch.tensor([0 if batch is None else len(batch) for batch in batches])
            yield _filled(loader(join([batch for batch in batches if batch is not None])), count)

    def _gradients(
        self, rows: Rows, parameters: Tensor, buffers: Tensor, batch: Batch
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients [K, P], losses [K] and new buffers [K, Q] of one batch a client."""
        method, functional = self.plan.method, self._functional

        def loss_of(
            parameters: Tensor, buffers: Tensor, batch: Batch, client: Client
        ) -> tuple[Tensor, Tensor]:
            with functional.masked(batch.mask):
                losses = method.batch_loss(functional.net(parameters, buffers), batch, client)
                return batch.mean(losses), functional.updated_buffers(buffers)

        points = rows.apply(method.look, parameters) if method.looks else parameters
        gradients, (losses, new) = rows.apply(grad_and_value(loss_of, has_aux=True), points, buffers, batch)
        return gradients, losses, new

    def _chunks(self, cohort: Iterable[Task]) -> Iterator[list[Task]]:
        """As many clients at a time as asked for, or as fit into memory."""
        chunk: list[Task] = []
        width = 0
        for task in cohort:
            wider = max(width, min(self.plan.local.batch, len(task.samples)))
            each = self._per_client + self._traced(task)
            bytes_needed = (len(chunk) + 1) * (self._per_sample * wider + each)
            full = len(chunk) == self._chunk if self._chunk else bytes_needed > self._memory
            if chunk and full:
                yield chunk
                chunk, wider = [], min(self.plan.local.batch, len(task.samples))
            chunk.append(task)
            width = wider
        if chunk:
            yield chunk

    def _traced(self, task: Task) -> int:
        """Bytes of a client's steps, if they are traced: where each started, and its batch."""
        if not self.plan.method.traced:
            return 0
        layout, inputs = self._functional.layout, math.prod(self._dataset.shape) * task.plan.local.batch
        return 4 * ration(task, self._batch_norm).total * (layout.size + layout.buffer_size + inputs)

    def _sizes(self) -> tuple[int, int]:
        """Bytes that one sample of a batch, and one client, take in a step."""
        numbers = 0

        def count(_module: nn.Module, _inputs: Any, output: Any) -> None:
            nonlocal numbers
            numbers += output.numel() if isinstance(output, Tensor) else 0

        module, layout = self._functional.module, self._functional.layout
        leaves = [part for part in module.modules() if not list(part.children())]
        hooks = [part.register_forward_hook(count) for part in leaves]
        with torch.no_grad():
            module(torch.zeros(2, *self._dataset.shape))
        for hook in hooks:
            hook.remove()
        # Activations are kept for the backward pass, and most layers need a second copy of theirs there.
        state = sum(tensor.numel() for tensor in self.plan.method.client_state(layout).values())
        moments = self.plan.local.optimizer.init(layout.zeros(), layout).values()
        # One of the five vectors is for a momentum.
        state += max(0, sum(tensor.numel() for tensor in moments) - layout.size)
        turns = self.plan.method.head.outputs
        return 4 * 2 * (numbers // 2) * turns, 4 * (5 * (layout.size + layout.buffer_size) + state)


def _together(states: list[State]) -> State:
    """The clients' states as one, with a row a client."""
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def _row(state: State, row: int) -> State:
    return {name: values[row] for name, values in state.items()}


def _rate(rates: list[float]) -> Rate:
    """One number if it is the same for all rows."""
    return rates[0] if len(set(rates)) == 1 else torch.tensor(rates)[:, None]


def _filled(loaded: tuple[Tensor, Tensor], sizes: Tensor) -> _Step:
    """One step from the clients' samples laid end to end; short batches are filled up, and masked."""
    x, labels = loaded
    width = int(sizes.max())
    if int(sizes.min()) == width:
        shape = (len(sizes), width)
        return _Step(Batch(x.view(*shape, *x.shape[1:]), labels.view(shape)), sizes)
    mask = torch.arange(width) < sizes[:, None]
    # By a sample that is there: zeros could be anything to a model, also a division by zero, and not even a
    # weight of zero heals a NaN.
    starts = (sizes.cumsum(0) - sizes).clamp_max(len(x) - 1)
    source = torch.where(mask, starts[:, None] + torch.arange(width), starts[:, None])
    return _Step(Batch(x[source], labels[source], mask.float()), sizes)
