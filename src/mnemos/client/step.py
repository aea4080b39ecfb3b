"""Local training, described once: a data pass, step after step, a data pass, the replies.

Every engine runs this description. An engine says, with a `Trainees`, how a function of one client is applied
(to one client, or to every row of a matrix with one row per client) and how gradients are taken. The order in
which a method acts is defined here and nowhere else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from mnemos.client.messages import Plan, TrainRequest
from mnemos.client.precision import lowered, tf32
from mnemos.client.reply import Trained, finish
from mnemos.common.devices import send
from mnemos.methods.exchange import Batch, Client, Net, State, When
from mnemos.methods.replies import TrainReplies
from mnemos.models.functional import Functional
from mnemos.vector import Layout

_R = TypeVar("_R")


class Step(NamedTuple):
    """One step of the clients that still train: their batch and their learning rates."""

    batch: Batch
    """Their samples [B, …], or [K, B, …] of K clients, and what the method's parts have drawn."""
    sizes: int | Tensor
    """How many samples each client has in the batch."""
    rates: Sequence[float]
    """Each client's learning rate."""
    epoch_ends: Sequence[int]
    """The clients, by row, whose local epoch is over after the step."""


class Trainees(ABC):
    """The clients that train together: one, or many as rows of matrices.

    With one client, `parameters` is its model w [P]; with K clients it is [K, P], and the other tensors have
    one row per client, too.
    """

    plan: Plan
    layout: Layout
    parameters: Tensor
    """The models in training."""
    buffers: Tensor
    optimizer: State
    """The state of the clients' optimisers."""
    losses: Tensor
    """The sum of the losses of each client's samples so far, or what `loss_reader` can make it of."""

    @property
    @abstractmethod
    def functional(self) -> Functional:
        """A replica that takes parameters and buffers as arguments."""

    # what the clients go through

    @abstractmethod
    def steps(self) -> Iterator[tuple[Trainees, Step]]:
        """Each step, with the clients that make it."""

    @abstractmethod
    def samples(self) -> Iterator[tuple[Trainees, Batch]]:
        """The batches of one pass over all samples as they are, with the clients that have them."""

    @abstractmethod
    def trained(self, data_means: State) -> Iterator[tuple[TrainRequest, Client, Trained]]:
        """Each client at the end of its training, with its request; `data_means`: what data passes found."""

    def replies(self, data_means: State) -> TrainReplies:
        """The clients' replies, in the order of their requests, with losses that are still to be read."""
        return TrainReplies([finish(*trained) for trained in self.trained(data_means)])

    @abstractmethod
    def loss_reader(self) -> Callable[[Tensor], list[float]]:
        """A function that turns `losses`, once on the host, into mean losses; it holds no other tensor."""

    # how functions of one client act on all of them

    @abstractmethod
    def apply(self, function: Callable[..., _R], *values: Tensor | Batch) -> _R:
        """The function of (values…, client) for each client."""

    @abstractmethod
    def gradient(self, points: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """The gradients of the batch's mean loss at these parameters, and the losses for `add_losses`.

        `buffers` take in what batch-norm measures on the way.
        """

    def correct(self, gradient: Tensor) -> Tensor:
        """The gradient after the corrections of the method's parts; may change `gradient` in place."""
        return self.apply(self.plan.method.correct, gradient, self.parameters)

    def add_losses(self, losses: Tensor, sizes: int | Tensor) -> None:
        """Add the mean losses of a step, of these numbers of samples, to the sums of `losses`."""
        self.losses.add_(losses * sizes)

    @abstractmethod
    def optimise(self, gradient: Tensor, rates: Sequence[float]) -> None:
        """One step of the clients' optimisers, in place; the gradient may be overwritten."""

    @abstractmethod
    def row(self, row: int) -> tuple[Tensor, State]:
        """One client's parameters and optimiser state, to be changed in place."""

    @abstractmethod
    def stack(self, values: Sequence[Tensor]) -> Tensor:
        """One value per client, as the tensor that `apply` takes."""

    @abstractmethod
    def part(self, values: Tensor) -> Tensor:
        """The rows of these clients in `values`, which has all clients of the round; shares its memory."""

    @abstractmethod
    def add(self, total: Tensor | None, value: Tensor) -> Tensor:
        """Add these clients' values to `total`, the sums of all clients of the round; None: all are 0."""

    @abstractmethod
    def per_sample(self, total: Tensor) -> Tensor:
        """Divide the sum of each client of the round by the number of its samples."""

    def lowered(self, net: Net) -> Net:
        """A model whose passes run in the precision of local training."""
        return lowered(net, self.plan.local.precision, self.losses.device)

    def mark(self) -> Tensor | None:
        """The state of the generator of forward passes (dropout); None: they draw nothing."""
        return None

    def rewind(self, mark: Tensor | None) -> None:
        """Go back to a mark, so that the next forward pass draws the same again."""

    def apply_net(self, function: Callable[..., _R], batch: Batch, *values: Tensor) -> _R:
        """The function of (values…, net, batch, client) for each client; `net` is the client's model."""

        def of_one(parameters: Tensor, buffers: Tensor, batch: Batch, *rest: Tensor | Client) -> _R:
            *values, client = rest
            with self.functional.masked(_not_empty(batch.mask)):
                net = self.lowered(self.functional.net(parameters, buffers))
                return function(*values, net, batch, client)

        return self.apply(of_one, self.parameters, self.buffers, batch, *values)


class _Trace(NamedTuple):
    """What is kept of a step, so that `pull_back` can go back through it."""

    here: Trainees
    """The clients that made it."""
    parameters: Tensor
    """Where they began it."""
    batch: Batch
    rates: Sequence[float]
    mark: Tensor | None
    """The state of the generator before their forward pass."""


def train(clients: Trainees) -> TrainReplies:
    """The replies of clients that train for a round, in the order of their requests."""
    replies = train_unread(clients)
    return with_losses([Unread(clients.losses, clients.loss_reader(), replies)])[0]


class Unread(NamedTuple):
    """Replies whose losses are still on a device."""

    losses: Tensor
    """`Trainees.losses` at the end of their training."""
    read: Callable[[Tensor], list[float]]
    """Makes the replies' mean losses of them."""
    replies: TrainReplies


def with_losses(several: Sequence[Unread]) -> list[TrainReplies]:
    """Replies with their losses, which are all read at once; this waits for their devices."""
    home = several[0].losses.device
    found = torch.cat([unread.losses.reshape(-1).to(home) for unread in several]).cpu()
    own = torch.split(found, [unread.losses.numel() for unread in several])
    return [unread.replies.with_losses(unread.read(some)) for unread, some in zip(several, own, strict=True)]


@torch.no_grad()
def train_unread(clients: Trainees) -> TrainReplies:
    """The replies of clients that train for a round, with losses that are still to be read.

    Nothing here waits for a device: it may still be at work on the replies.
    """
    if clients.plan.local.precision == "tf32":
        with tf32(True, clients.losses.device):
            return _train_unread(clients)
    return _train_unread(clients)


def _train_unread(clients: Trainees) -> TrainReplies:
    found = data_pass(clients, "start")
    trace: list[_Trace] = []
    for here, step in clients.steps():
        local_step(here, step, trace)
    found |= data_pass(clients, "end")
    if (name := clients.plan.method.correction.traced) is not None:
        found[name] = _pulled_back(clients.plan, found[name], trace)
    return clients.replies(found)


def local_step(here: Trainees, step: Step, trace: list[_Trace]) -> None:
    """One step of local training; a step that has to be traced back is added to the trace."""
    method, local = here.plan.method, here.plan.local
    batch = method.head.turned(step.batch)
    if method.correction.traced is not None:
        trace.append(_Trace(here, here.parameters.clone(), batch, step.rates, here.mark()))
    points = here.parameters
    if method.uses("gradient_point"):
        points = here.apply(method.correction.gradient_point, points)
    gradient, losses = here.gradient(points, batch)
    if method.uses("correct"):
        gradient = here.correct(gradient)
    here.optimise(gradient, step.rates)
    if method.uses("after_step"):
        here.parameters.copy_(here.apply_net(method.after_step, batch, here.parameters))
    for row in step.epoch_ends:
        local.optimizer.epoch(*here.row(row), here.layout, local.lr)
    here.add_losses(losses, step.sizes)


def data_pass(clients: Trainees, when: When) -> State:
    """The means, over each client's samples, of what the method's parts compute before or after training.

    Before training, the model is in training mode, as for the gradients that the means are compared with;
    after training, it is in evaluation mode.
    """
    method = clients.plan.method
    if not method.passes_data(when):
        return {}
    sums: State = {}
    with clients.functional.training(when == "start"):
        for here, batch in clients.samples():
            batch = method.head.upright(batch)
            found = here.apply_net(partial(method.data_pass, when), batch, here.parameters)
            for name, value in found.items():
                sums[name] = here.add(sums.get(name), value)
    return {name: clients.per_sample(total) for name, total in sums.items()}


def _pulled_back(plan: Plan, vector: Tensor, trace: list[_Trace]) -> Tensor:
    """Turn a gradient with respect to the trained models into one with respect to the models received."""
    method = plan.method

    def pull_back(
        vector: Tensor, parameters: Tensor, rate: Tensor, net: Net, batch: Batch, client: Client
    ) -> Tensor:
        def mean_loss(parameters: Tensor) -> Tensor:
            return batch.mean(method.batch_loss(net.at(parameters), batch, client))

        return method.correction.pull_back(vector, parameters, mean_loss, rate)

    pairs = [torch.tensor([[lr, plan.local.weight_decay] for lr in step.rates]) for step in trace]
    for step, rate in zip(reversed(trace), reversed(send(pairs, vector.device)), strict=True):
        here, parameters, batch, _, mark = step
        here.rewind(mark)
        rate = here.stack(list(rate))
        part = here.part(vector)
        part.copy_(here.apply_net(pull_back, batch, part, parameters, rate))
    return vector


def _not_empty(mask: Tensor | None) -> Tensor | None:
    """The mask, or all ones if it marks no sample: batch-norm can't measure an empty batch."""
    return None if mask is None else torch.where(mask.sum() > 0, mask, 1.0)
