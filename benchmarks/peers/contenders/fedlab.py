"""FedLab: its standalone pipeline with a serial trainer."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import contenders.vision  # noqa: F401

# isort: split
from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.contrib.algorithm.scaffold import ScaffoldSerialClientTrainer, ScaffoldServerHandler
from fedlab.core.standalone import StandalonePipeline
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from contenders.task import Task
from contenders.turns import Turns


class Samples:
    """The clients' samples, in batches that are looked up at once instead of sample by sample."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def get_dataloader(self, client: int, batch_size: int) -> DataLoader[tuple[Tensor, ...]]:
        data = TensorDataset(*self.task.of(client))
        batches = BatchSampler(RandomSampler(data), batch_size, drop_last=False)
        return DataLoader(data, sampler=batches, batch_size=None)


class Turn:
    """A server that waits for its turn, and is told whom to ask."""

    turns: Turns
    task: Task
    round: int

    @property
    def num_clients_per_round(self) -> int:
        return self.task.cohort

    def sample_clients(self) -> list[int]:
        if not self.turns.wait():
            sys.exit(0)
        return self.task.chosen(self.round)


class FedAvgServer(Turn, SyncServerHandler):
    """The server of FedAvg."""


class ScaffoldServer(Turn, ScaffoldServerHandler):
    """The server of SCAFFOLD."""


class Pipeline(StandalonePipeline):
    """Answers after each round."""

    def evaluate(self) -> None:
        self.handler.turns.stop_clock()
        self.handler.turns.answer(self.handler.task.loss(self.handler.model))


def main() -> None:
    turns, task = Turns(), Task.read(Path(sys.argv[1]))
    model, share = task.model(), task.cohort / task.clients
    if task.scaffold:
        handler = ScaffoldServer(model, 10**6, share)
        handler.setup_optim(lr=1.0)
        trainer = ScaffoldSerialClientTrainer(model, task.clients)
    else:
        handler = FedAvgServer(model, 10**6, share)
        trainer = SGDSerialClientTrainer(model, task.clients)
    handler.turns, handler.task = turns, task
    trainer.setup_dataset(Samples(task))
    trainer.setup_optim(task.epochs, task.batch, task.lr)
    logging.getLogger().setLevel(logging.WARNING)
    turns.ready()
    Pipeline(handler, trainer).main()


if __name__ == "__main__":
    main()
