"""One client's round: a message in, an update out, nothing else touched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mnemos import rng
from mnemos.data.batches import Loader, Ration, draws
from mnemos.data.dataset import Dataset
from mnemos.data.load import load
from mnemos.message import Plan, Task, update_to_bytes
from mnemos.methods.method import Client, Finished, Update
from mnemos.models.convolution import fast_convolutions
from mnemos.models.dropout import set_generator
from mnemos.models.features import features_and_logits
from mnemos.models.memory import channels_last_is_safe
from mnemos.models.model import build_model
from mnemos.vector import Bound


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
    return build_model(plan.model, dataset.shape, len(dataset.classes), init)


def has_batch_norm(module: nn.Module) -> bool:
    """Whether a sample's output depends on the others in its batch."""
    return any(isinstance(part, _BatchNorm) for part in module.modules())


def ration(task: Task, batch_norm: bool) -> Ration:
    """What a client trains on in a round."""
    local = task.plan.local
    return Ration(task.samples, local.batch, local.epochs, local.steps, task.noise, batch_norm)


def view(task: Task, labels: Tensor, classes: int) -> Client:
    """What the method sees of a client."""
    counted = task.samples
    if task.plan.method.loss.counts_held_out:
        counted = torch.cat([counted, task.held_out])
    counts = torch.bincount(labels[counted], minlength=classes)
    return Client(task.model, task.received, task.state, counts.float())


def finish(task: Task, client: Client, end: Tensor, buffers: Tensor, steps: int, loss: float) -> Update:
    """The update of a client that has trained."""
    change, state = task.plan.method.upload(Finished(client, end, steps, task.plan.local))
    return Update(
        task.client, task.round, len(task.samples), steps, loss, end - task.model, buffers, change, state
    )


class _Module:
    """A bound module as the function a method sees."""

    def __init__(self, module: nn.Module, forward: nn.Module) -> None:
        self._module = module
        self._forward = forward

    def __call__(self, x: Tensor) -> Tensor:
        logits: Tensor = self._forward(x)
        return logits

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return features_and_logits(self._module, x)


class Trainer:
    """A model replica that runs clients' rounds one after the other; one a thread."""

    def __init__(self, plan: Plan, dataset: Dataset) -> None:
        self.bound = Bound(fresh_model(plan, dataset))
        self.module = self.bound.module.train()
        self.dataset = dataset
        self.batch_norm = has_batch_norm(self.module)
        channels_last = plan.arithmetic.channels_last and channels_last_is_safe(self.module)
        self.loader = Loader(dataset, plan.local.augment, channels_last)
        if channels_last and not plan.arithmetic.compile:
            fast_convolutions(self.module)
        forward = torch.compile(self.module) if plan.arithmetic.compile else self.module
        self.net = _Module(self.module, forward)  # type: ignore[arg-type]

    def __call__(self, task: Task) -> Update:
        """Train one client for one round."""
        plan, bound = task.plan, self.bound
        method, local, optimizer = plan.method, plan.local, plan.local.optimizer
        bound.load(task.model, task.buffers)
        key = (plan.seed, task.round, task.client)
        set_generator(self.module, rng.generator(plan.seed, "dropout", task.round, task.client))
        client = view(task, self.dataset.train.labels, len(self.dataset.classes))
        state = optimizer.init(bound.parameters)
        todo = ration(task, self.batch_norm)
        load_batch = self.loader.keep(todo)
        total, seen = torch.zeros(()), 0
        for batch in draws(todo, local.augment, self.dataset.shape, key):
            x, labels = load_batch(batch)
            bound.gradients.zero_()
            loss = method.batch_loss(self.net, x, labels, client).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            with torch.no_grad():
                gradient = method.correct(bound.gradients, bound.parameters, client)
                optimizer.step(bound.parameters, gradient, state, local.lr, local.weight_decay)
                total += loss * len(labels)
            seen += len(labels)
        with torch.no_grad():
            return finish(
                task, client, bound.parameters.clone(), bound.buffers.clone(), todo.total, float(total) / seen
            )


def train_message(message: bytes) -> bytes:
    """One client's round from the bytes of its task to the bytes of its update."""
    task = Task.from_bytes(message)
    with intra_op(task.plan.arithmetic.intra_op):
        return update_to_bytes(Trainer(task.plan, load(task.plan.data))(task))
