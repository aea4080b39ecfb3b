"""One client's round: a message in, an update out, nothing else touched."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mnemos import rng
from mnemos.data.batches import Loader, Ration, believed, draws
from mnemos.data.dataset import Dataset
from mnemos.data.load import load
from mnemos.local import Local
from mnemos.message import Plan, Task, update_to_bytes
from mnemos.methods.exchange import Batch, Client, Finished, Net, Rates, State, Update, When
from mnemos.methods.method import Method
from mnemos.models.convolution import fast_convolutions
from mnemos.models.dropout import set_generator
from mnemos.models.features import features_and_logits, head
from mnemos.models.functional import Functional
from mnemos.models.memory import channels_last_is_safe
from mnemos.models.model import build_model
from mnemos.vector import Bound, Layout

_OPTIMIZER = "optimizer."
"""What a client keeps of its optimiser has names that start like this; those of methods never do."""


@contextmanager
def intra_op(threads: int) -> Iterator[None]:
    """Run tensor operations on this many threads, in this thread of the program."""
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


def ration(task: Task, batch_norm: bool) -> Ration:
    """What a client trains on in a round."""
    local, relabel = task.plan.local, task.relabel
    todo = Ration(
        task.samples, local.batch, local.epochs, local.steps, task.noise, batch_norm, local.fill, relabel
    )
    return todo if task.steps is None or task.steps >= todo.total else replace(todo, steps=task.steps)


def once(task: Task) -> Ration:
    """One pass over all of a client's samples."""
    batch = task.plan.local.batch
    return Ration(task.samples, batch, 1, None, task.noise, drop_single=False, relabel=task.relabel)


def rates(task: Task, todo: Ration) -> Rates:
    """A client's learning rates in a round; a pass that isn't finished belongs to the epoch before it.

    They are those of the whole round, also of one that has to stop early.
    """
    local = task.plan.local
    whole = todo if task.steps is None else replace(todo, steps=local.steps)
    epochs = len(whole.ends)
    lengths = [len(whole.epoch)] * (epochs - 1)
    lengths.append(whole.total - sum(lengths))
    factors = [local.schedule.factor(task.round, epoch, epochs) for epoch in range(epochs)]
    steps = [factor for factor, length in zip(factors, lengths, strict=True) for _ in range(length)]
    return tuple((len(list(group)), local.lr * factor) for factor, group in groupby(steps[: todo.total]))


def made(rates: Rates, steps: int) -> Rates:
    """The learning rates of the first steps."""
    return tuple((len(list(group)), rate) for rate, group in groupby(each(rates)[:steps]))


def each(rates: Rates) -> list[float]:
    """The learning rate of each step."""
    return [rate for steps, rate in rates for _ in range(steps)]


def begin(task: Task, parameters: Tensor, layout: Layout) -> State:
    """The state of a client's optimiser at the start of its round."""
    state = task.plan.local.optimizer.init(parameters, layout)
    for name in state:
        if _OPTIMIZER + name in task.state:  # a copy: a task may be run again
            state[name] = task.state[_OPTIMIZER + name].clone()
    return state


def kept(local: Local, state: State) -> State:
    """What a client remembers of its optimiser's state."""
    return {_OPTIMIZER + name: value for name, value in state.items()} if local.keeps else {}


def view(task: Task, labels: Tensor, classes: int) -> Client:
    """What the method sees of a client."""
    method = task.plan.method
    counts = held = torch.bincount(believed(labels[task.samples], task.relabel), minlength=classes)
    if method.loss.counted == "all":
        counts = held + torch.bincount(believed(labels[task.held_out], task.relabel), minlength=classes)
    elif method.loss.counted == "tasks":
        counts = task.met
    state = {name: value for name, value in task.state.items() if not name.startswith(_OPTIMIZER)}
    present = task.present | (held > 0)
    counts = method.head.per_output(counts.float())
    return Client(task.model, task.received, state, counts, held.float(), present.float())


def random(task: Task) -> torch.Generator:
    """Where the method's parts draw from in a client's round."""
    return rng.generator(task.plan.seed, "parts", task.round, task.client)


def finish(
    task: Task,
    client: Client,
    end: Tensor,
    buffers: Tensor,
    rates: Rates,
    loss: float,
    surveyed: State,
    optimizer: State,
) -> Update:
    """The update of a client that has trained."""
    plan, local, steps = task.plan, task.plan.local, sum(count for count, _ in rates)
    done = Finished(client, end, steps, rates, local, surveyed)
    change, state = plan.method.upload(done)
    delta, said = plan.privacy.protect(
        plan.method.correction.delta(done), task.received, plan.seed, task.round, task.client
    )
    return Update(
        task.client,
        task.round,
        len(task.samples),
        steps,
        loss,
        delta,
        buffers,
        {**change, **said},
        {**state, **kept(local, optimizer)},
    )


class _Module:
    """A bound module as the function a method sees."""

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


_Traced = tuple[Tensor, Batch, float, Tensor]
"""A step that can be traced back: where it started, its batch and rate, and the dropout generator's state."""


class Trainer:
    """A model replica that runs clients' rounds one after the other; one a thread."""

    def __init__(self, plan: Plan, dataset: Dataset) -> None:
        self._plan = plan
        self.bound = Bound(fresh_model(plan, dataset))
        self.module = self.bound.module.train()
        self.dataset = dataset
        self.batch_norm = has_batch_norm(self.module)
        self._channels_last = plan.arithmetic.channels_last and channels_last_is_safe(self.module)
        self.loader = Loader(dataset, plan.local.augment, self._channels_last)
        if self._channels_last and not plan.arithmetic.compile:
            fast_convolutions(self.module)
        forward = torch.compile(self.module) if plan.arithmetic.compile else self.module
        self.net = _Module(self, forward)  # type: ignore[arg-type]
        self._dropout = torch.Generator()
        set_generator(self.module, self._dropout)

    @cached_property
    def functional(self) -> Functional:
        """A second replica, for methods that look at other models than the one being trained."""
        twin = fresh_model(self._plan, self.dataset)
        set_generator(twin, self._dropout)
        return Functional(twin)

    def __call__(self, task: Task) -> Update:
        """Train one client for one round."""
        until = math.inf if task.seconds is None else time.monotonic() + task.seconds
        plan, bound = task.plan, self.bound
        method, local, optimizer = plan.method, plan.local, plan.local.optimizer
        bound.load(task.model, task.buffers)
        key = (plan.seed, task.round, task.client)
        # One generator for the replica and its twin, put where this client's masks begin.
        self._dropout.set_state(rng.generator(plan.seed, "dropout", task.round, task.client).get_state())
        client = view(task, self.dataset.train.labels, len(self.dataset.classes))
        surveyed = self._survey("start", task, client)
        state = begin(task, bound.parameters, bound.layout)
        todo = ration(task, self.batch_norm)
        pace = rates(task, todo)
        ends = frozenset(todo.ends) if optimizer.counts_epochs else frozenset()
        load_batch = self.loader.keep(todo)
        generator = random(task)
        total, seen = torch.zeros(()), 0
        trace: list[_Traced] = []
        batches = draws(todo, local.augment, self.dataset.shape, key)
        for number, (draw, lr) in enumerate(zip(batches, each(pace), strict=True), 1):
            drawn = method.draw(local.batch, bound.layout, generator)
            x, labels = load_batch(draw)
            batch = method.head.turned(Batch(x, believed(labels, task.relabel), drawn=drawn))
            if method.traced:
                trace.append((bound.parameters.clone(), batch, lr, self._dropout.get_state()))
            bound.gradients.zero_()
            loss = self._gradient(method, batch, client)
            with torch.no_grad():
                gradient = method.correct(bound.gradients, bound.parameters, client)
                optimizer.step(bound.parameters, gradient, state, lr, local.weight_decay)
                if method.settles:
                    bound.parameters.copy_(method.settle(bound.parameters, self.net, batch, client))
                if number in ends:
                    optimizer.epoch(bound.parameters, state, bound.layout, local.lr)
                total += loss * len(batch.labels)
            seen += len(batch.labels)
            if time.monotonic() >= until:
                pace = made(pace, number)
                break
        surveyed |= self._survey("end", task, client)
        for name in method.traced:
            surveyed[name] = self._pull_back(surveyed[name], trace, task, client)
        with torch.no_grad():
            end, buffers = bound.parameters.clone(), bound.buffers.clone()
            return finish(task, client, end, buffers, pace, float(total) / seen, surveyed, state)

    def _gradient(self, method: Method, batch: Batch, client: Client) -> Tensor:
        """Leaves a batch's gradient in the bound vector, and gives its mean loss."""
        parameters = self.bound.parameters
        here = parameters.clone() if method.looks else None
        if here is not None:
            parameters.copy_(method.look(here, client))
        loss = batch.mean(method.batch_loss(self.net, batch, client))
        loss.backward()  # type: ignore[no-untyped-call]
        if here is not None:
            parameters.copy_(here)
        return loss

    def _pull_back(self, vector: Tensor, trace: list[_Traced], task: Task, client: Client) -> Tensor:
        """A gradient at the end of the client's steps, as one of the model it received."""
        method, decay = task.plan.method, task.plan.local.weight_decay
        for parameters, batch, lr, dropout in reversed(trace):
            self._dropout.set_state(dropout)  # the masks of that step
            net = self.functional.net(parameters, self.bound.buffers)
            vector = method.pull_back(vector, parameters, torch.tensor([lr, decay]), net, batch, client)
        return vector

    def _survey(self, when: When, task: Task, client: Client) -> State:
        """What the method's parts find in a pass over the client's samples, as means."""
        method = task.plan.method
        if not method.surveys(when):
            return {}
        loader = Loader(self.dataset, (), self._channels_last)
        key = (task.plan.seed, task.round, task.client)
        sums: State = {}
        # What the gradients of the training are compared with has to be in the same mode as they are.
        with torch.no_grad(), self.functional.training(when == "start"):
            net = self.functional.net(self.bound.parameters, self.bound.buffers)
            for draw in draws(once(task), (), self.dataset.shape, key):
                x, labels = loader(draw)
                batch = method.head.upright(Batch(x, believed(labels, task.relabel)))
                found = method.survey(when, self.bound.parameters, net, batch, client)
                for name, value in found.items():
                    sums[name] = sums[name] + value if name in sums else value
        return {name: value / len(task.samples) for name, value in sums.items()}


def train_message(message: bytes) -> bytes:
    """One client's round from the bytes of its task to the bytes of its update."""
    task = Task.from_bytes(message)
    with intra_op(task.plan.arithmetic.intra_op):
        return update_to_bytes(Trainer(task.plan, load(task.plan.data))(task))
