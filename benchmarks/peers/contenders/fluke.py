"""fluke: its own FedAVG and SCAFFOLD, with its loaders of tensors in memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import contenders.vision  # noqa: F401

# isort: split
from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.algorithms.scaffold import SCAFFOLD
from fluke.data import FastDataLoader
from fluke.utils import FederationObserver

from contenders.task import Task
from contenders.turns import Turns


class Samples:
    """Gives each client its samples."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def assign(self, clients: int, batch_size: int) -> tuple[Any, None]:
        loaders = [
            FastDataLoader(
                *self.task.of(client), num_labels=self.task.settings["classes"], batch_size=batch_size,
                shuffle=True, skip_singleton=False,
            )
            for client in range(clients)
        ]  # fmt: skip
        return (loaders, [None] * clients), None


class Hook(FederationObserver):
    """Waits for its turn between rounds, and says who trains."""

    def __init__(self, turns: Turns, task: Task, algorithm: FedAVG) -> None:
        self.turns, self.task, self.server = turns, task, algorithm.server
        self.round = 0
        algorithm.server.get_eligible_clients = self.chosen

    def chosen(self, _share: float) -> list[Any]:
        return [self.server.clients[client] for client in self.task.chosen(self.round)]

    def start_round(self, round: int, global_model: Any) -> None:
        self.round = round - 1
        if not self.turns.wait():
            sys.exit(0)

    def end_round(self, round: int) -> None:
        self.turns.stop_clock()
        self.turns.answer(self.task.loss(self.server.model))


def main() -> None:
    turns, task = Turns(), Task.read(Path(sys.argv[1]))
    environment = FlukeENV()
    environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    environment.set_inmemory(True)
    settings = {
        "model": task.model(),
        "client": {
            "batch_size": task.batch,
            "local_epochs": task.epochs,
            "loss": "CrossEntropyLoss",
            "optimizer": {"name": "SGD", "lr": task.lr},
            "scheduler": {"name": "StepLR", "step_size": 1, "gamma": 1},
        },
        "server": {"weighted": True},
    }
    algorithm = (SCAFFOLD if task.scaffold else FedAVG)(task.clients, Samples(task), DDict(settings))
    algorithm.set_callbacks(Hook(turns, task, algorithm))
    turns.ready()
    algorithm.run(10**6, task.cohort / task.clients, finalize=False)


if __name__ == "__main__":
    main()
