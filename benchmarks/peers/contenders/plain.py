"""The loop everybody writes first: clients one after the other, eager, PyTorch's default threads."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contenders.task import Task
from contenders.turns import take_turns

State = dict[str, Tensor]


def prepare(task: Task) -> tuple[Callable[[int], object], nn.Module]:
    return (Scaffold if task.scaffold else FedAvg)(task).parts


class FedAvg:
    """Federated averaging, weighted by samples."""

    def __init__(self, task: Task) -> None:
        self.task, self.model = task, task.model()

    @property
    def parts(self) -> tuple[Callable[[int], object], nn.Module]:
        return self.round, self.model

    def round(self, index: int) -> None:
        chosen = self.task.chosen(index)
        sizes = [self.task.size(client) for client in chosen]
        self.model.load_state_dict(mean([self.trained(client) for client in chosen], sizes))

    def trained(self, client: int) -> State:
        task, model = self.task, copy.deepcopy(self.model).train()
        x, y = task.of(client)
        optimizer = torch.optim.SGD(model.parameters(), lr=task.lr)
        for _ in range(task.epochs):
            for rows in torch.split(torch.randperm(len(y)), task.batch):
                optimizer.zero_grad()
                F.cross_entropy(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
                self.correct(client, model)
                optimizer.step()
        self.finish(client, model)
        return model.state_dict()

    def correct(self, client: int, model: nn.Module) -> None:
        """Change the gradients of a step; FedAvg doesn't."""

    def finish(self, client: int, model: nn.Module) -> None:
        """Keep what a client keeps until its next round; nothing in FedAvg."""


class Scaffold(FedAvg):
    """SCAFFOLD (Karimireddy et al., 2020) with its second option for the control variates."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.own: dict[int, list[Tensor]] = {}
        self.shared = self.zeros()
        self.change = self.zeros()

    def zeros(self) -> list[Tensor]:
        return [torch.zeros_like(parameter) for parameter in self.model.parameters()]

    def round(self, index: int) -> None:
        self.change = self.zeros()
        super().round(index)
        for shared, change in zip(self.shared, self.change, strict=True):
            shared += change / self.task.clients

    def correct(self, client: int, model: nn.Module) -> None:
        own = self.own.get(client) or self.zeros()
        for parameter, before, shared in zip(model.parameters(), own, self.shared, strict=True):
            assert parameter.grad is not None
            parameter.grad += shared - before

    @torch.no_grad()
    def finish(self, client: int, model: nn.Module) -> None:
        """cᵢ⁺ = cᵢ − c + (x − yᵢ) / (K·η)."""
        task, own = self.task, self.own.get(client) or self.zeros()
        steps = task.epochs * -(-task.size(client) // task.batch)
        after = [
            before - shared + (start - end) / (steps * task.lr)
            for before, shared, start, end in zip(
                own, self.shared, self.model.parameters(), model.parameters(), strict=True
            )
        ]
        for change, new, old in zip(self.change, after, own, strict=True):
            change += new - old
        self.own[client] = after


def mean(states: list[State], sizes: list[int]) -> State:
    """The mean of models, weighted by samples."""
    weights = torch.tensor(sizes, dtype=torch.float32) / sum(sizes)
    return {
        name: torch.tensordot(weights, torch.stack([state[name].float() for state in states]), 1)
        for name in states[0]
    }


if __name__ == "__main__":
    take_turns(prepare)
