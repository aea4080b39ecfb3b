"""Flower: its simulation on Ray, with one core for each client."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from contenders.flower_client import FOLDER, app
from contenders.task import Task
from contenders.turns import Turns


class Strategy(FedAvg):
    """FedAvg that waits for its turn; it chooses its cohorts for itself."""

    def __init__(self, turns: Turns, task: Task) -> None:
        super().__init__(
            fraction_train=task.cohort / task.clients,
            fraction_evaluate=0.0,
            min_train_nodes=task.cohort,
            min_available_nodes=task.clients,
        )
        self.turns, self.task, self.model = turns, task, task.model()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if not self.turns.wait():
            sys.exit(0)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        arrays, metrics = super().aggregate_train(server_round, replies)
        self.turns.stop_clock()
        assert arrays is not None
        self.model.load_state_dict(arrays.to_torch_state_dict())
        self.turns.answer(self.task.loss(self.model))
        return arrays, metrics


def main() -> None:
    turns, folder = Turns(), Path(sys.argv[1])
    os.environ[FOLDER] = str(folder)
    task = Task.read(folder)
    if task.scaffold:
        turns.cannot("no SCAFFOLD among its strategies")
    server = ServerApp()

    @server.main()
    def run(grid: Grid, _context: Context) -> None:
        strategy = Strategy(turns, task)
        strategy.start(grid, ArrayRecord(strategy.model.state_dict()), num_rounds=10**6, timeout=10**6)

    turns.ready()
    run_simulation(
        server,
        app,
        num_supernodes=task.clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )


if __name__ == "__main__":
    main()
