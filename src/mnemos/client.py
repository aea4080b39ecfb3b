"""One client's round: a message in, an update out, nothing else touched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mnemos import rng
from mnemos.data.batches import Loader, Ration, draws
from mnemos.data.dataset import Dataset
from mnemos.data.load import load
from mnemos.message import Plan, Task, update_to_bytes
from mnemos.methods.exchange import Batch, Client, Finished, Net, State, Update, When
from mnemos.methods.method import Method
from mnemos.models.convolution import fast_convolutions
from mnemos.models.dropout import set_generator
from mnemos.models.features import features_and_logits
from mnemos.models.functional import Functional
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


def once(task: Task) -> Ration:
    """One pass over all of a client's samples."""
    return Ration(task.samples, task.plan.local.batch, 1, None, task.noise, drop_single=False)


def view(task: Task, labels: Tensor, classes: int) -> Client:
    """What the method sees of a client."""
    counted = task.samples
    if task.plan.method.loss.counts_held_out:
        counted = torch.cat([counted, task.held_out])
    counts = torch.bincount(labels[counted], minlength=classes)
    return Client(task.model, task.received, task.state, counts.float())


def finish(
    task: Task, client: Client, end: Tensor, buffers: Tensor, steps: int, loss: float, surveyed: State
) -> Update:
    """The update of a client that has trained."""
    change, state = task.plan.method.upload(Finished(client, end, steps, task.plan.local, surveyed))
    return Update(
        task.client, task.round, len(task.samples), steps, loss, end - task.model, buffers, change, state
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

    def at(self, parameters: Tensor) -> Net:
        return self._trainer.functional.net(parameters, self._trainer.bound.buffers).at(parameters)


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
        plan, bound = task.plan, self.bound
        method, local, optimizer = plan.method, plan.local, plan.local.optimizer
        bound.load(task.model, task.buffers)
        key = (plan.seed, task.round, task.client)
        # One generator for the replica and its twin, put where this client's masks begin.
        self._dropout.set_state(rng.generator(plan.seed, "dropout", task.round, task.client).get_state())
        client = view(task, self.dataset.train.labels, len(self.dataset.classes))
        surveyed = self._survey("start", task, client)
        state = optimizer.init(bound.parameters)
        todo = ration(task, self.batch_norm)
        load_batch = self.loader.keep(todo)
        total, seen = torch.zeros(()), 0
        for draw in draws(todo, local.augment, self.dataset.shape, key):
            batch = Batch(*load_batch(draw))
            bound.gradients.zero_()
            loss = self._gradient(method, batch, client)
            with torch.no_grad():
                gradient = method.correct(bound.gradients, bound.parameters, client)
                optimizer.step(bound.parameters, gradient, state, local.lr, local.weight_decay)
                if method.settles:
                    bound.parameters.copy_(method.settle(bound.parameters, self.net, batch, client))
                total += loss * len(batch.labels)
            seen += len(batch.labels)
        surveyed |= self._survey("end", task, client)
        with torch.no_grad():
            end, buffers = bound.parameters.clone(), bound.buffers.clone()
            return finish(task, client, end, buffers, todo.total, float(total) / seen, surveyed)

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
                found = method.survey(when, self.bound.parameters, net, Batch(*loader(draw)), client)
                for name, value in found.items():
                    sums[name] = sums[name] + value if name in sums else value
        return {name: value / len(task.samples) for name, value in sums.items()}


def train_message(message: bytes) -> bytes:
    """One client's round from the bytes of its task to the bytes of its update."""
    task = Task.from_bytes(message)
    with intra_op(task.plan.arithmetic.intra_op):
        return update_to_bytes(Trainer(task.plan, load(task.plan.data))(task))
