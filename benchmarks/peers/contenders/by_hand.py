"""The fastest round we know how to write by hand for a work: the floor.

Convolutional models: a thread for each core with replicas of its own, one intra-op thread each,
channels-last.
Others: all clients at once, `vmap` over dictionaries of tensors.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from contenders.plain import FedAvg, State
from contenders.task import Task
from contenders.turns import take_turns


def prepare(task: Task) -> tuple[Callable[[int], object], nn.Module]:
    if task.convolutional:
        return Threads(task).parts
    kind = StackedScaffold if task.scaffold else Stacked
    torch.set_num_threads(min((1, torch.get_num_threads()), key=lambda threads: trial(kind(task), threads)))
    return kind(task).parts


def trial(stacked: Stacked, threads: int) -> float:
    """Seconds of the second of two rounds on this many intra-op threads."""
    torch.set_num_threads(threads)
    stacked.round(0)
    begin = time.perf_counter()
    stacked.round(1)
    return time.perf_counter() - begin


class Threads(FedAvg):
    """Clients on threads."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        cores = len(os.sched_getaffinity(0))
        self.pool = ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,))
        torch.set_num_threads(1)

    def round(self, index: int) -> None:
        chosen = self.task.chosen(index)
        sizes, total = [self.task.size(client) for client in chosen], self.model.state_dict()
        states = self.pool.map(self.trained, chosen)
        sums = {name: torch.zeros_like(value, dtype=torch.float32) for name, value in total.items()}
        for size, state in zip(sizes, states, strict=True):
            for name, value in state.items():
                sums[name] += value * (size / sum(sizes))
        self.model.load_state_dict(sums)

    def trained(self, client: int) -> State:
        task, model = self.task, copy.deepcopy(self.model).train()
        x, y = task.of(client)
        x = x.contiguous(memory_format=torch.channels_last)
        parameters: list[Tensor] = list(model.parameters())
        for _ in range(task.epochs):
            for rows in torch.split(torch.randperm(len(y)), task.batch):
                loss = F.cross_entropy(model(x[rows]), y[rows])
                gradients = torch.autograd.grad(loss, parameters)
                with torch.no_grad():
                    torch._foreach_add_(parameters, gradients, alpha=-task.lr)
        return model.state_dict()


class Stacked:
    """All clients of a cohort at once; the smaller ones are padded, and their padding has no weight."""

    def __init__(self, task: Task) -> None:
        self.task, self.model = task, task.model()
        self.parameters = {name: value.detach() for name, value in self.model.named_parameters()}
        self.gradients = vmap(grad(self.loss))
        self.longest = max(map(task.size, range(task.clients)))
        self.even = min(map(task.size, range(task.clients))) == self.longest

    @property
    def parts(self) -> tuple[Callable[[int], object], nn.Module]:
        return self.round, self.model

    def loss(self, parameters: State, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        losses = F.cross_entropy(functional_call(self.model, parameters, x), y, reduction="none")
        return (losses * weight).sum()

    def samples(self, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Samples, labels and whether they are no padding, with a row for each client."""
        starts = torch.tensor(self.task.starts)
        first, count = starts[chosen, None], (starts[chosen + 1] - starts[chosen])[:, None]
        place = torch.arange(self.longest)
        real = place < count
        rows = torch.where(real, first + place, first)
        return self.task.floats(self.task.samples[rows]), self.task.labels[rows], real.float()

    @torch.no_grad()
    def round(self, index: int) -> None:
        task, chosen = self.task, torch.tensor(self.task.chosen(index))
        x, y, real = self.samples(chosen)
        count, rows = len(chosen), torch.arange(len(chosen))[:, None]
        state = {name: value.expand(count, *value.shape).clone() for name, value in self.parameters.items()}
        steps = 0
        for _ in range(task.epochs):
            keys = torch.rand(count, self.longest)
            order = (keys if self.even else keys + (1 - real)).argsort(1)
            for places in torch.split(order, task.batch, 1):
                weight = real[rows, places]
                weight = weight / weight.sum(1, keepdim=True).clamp(min=1)
                gradients = self.gradients(state, x[rows, places], y[rows, places], weight)
                self.step(chosen, state, gradients)
                steps += 1
        self.finish(chosen, state, steps)
        weights = real.sum(1) / real.sum()
        for name, value in state.items():
            self.parameters[name].copy_(torch.tensordot(weights, value, 1))

    def step(self, chosen: Tensor, state: State, gradients: State) -> None:
        for name, gradient in gradients.items():
            state[name].add_(gradient, alpha=-self.task.lr)

    def finish(self, chosen: Tensor, state: State, steps: int) -> None:
        """Keep what clients keep until their next round; nothing in FedAvg."""


class StackedScaffold(Stacked):
    """SCAFFOLD, with the control variates of all clients in memory."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.own = {
            name: value.new_zeros(task.clients, *value.shape) for name, value in self.parameters.items()
        }
        self.shared = {name: torch.zeros_like(value) for name, value in self.parameters.items()}
        self.corrections: State = {}

    def round(self, index: int) -> None:
        chosen = torch.tensor(self.task.chosen(index))
        self.corrections = {name: self.shared[name] - own[chosen] for name, own in self.own.items()}
        super().round(index)

    def step(self, chosen: Tensor, state: State, gradients: State) -> None:
        for name, gradient in gradients.items():
            state[name].add_(gradient.add_(self.corrections[name]), alpha=-self.task.lr)

    def finish(self, chosen: Tensor, state: State, steps: int) -> None:
        for name, value in state.items():
            change = (self.parameters[name] - value) / (steps * self.task.lr) - self.shared[name]
            self.own[name][chosen] += change
            self.shared[name] += change.sum(0) / self.task.clients


if __name__ == "__main__":
    take_turns(prepare)
