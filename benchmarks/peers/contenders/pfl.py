"""pfl: its simulated backend in one process, with a PyTorch model."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.algorithm.scaffold import SCAFFOLD, SCAFFOLDParams
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.user_state import InMemoryUserStateStorage
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from contenders.task import Task
from contenders.turns import Turns


class Learner(nn.Module):
    """A model with the methods that pfl asks for."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.net(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}


class Hook(TrainingProcessCallback):
    """Waits for its turn between rounds."""

    def __init__(self, turns: Turns, task: Task) -> None:
        self.turns, self.task = turns, task

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.turns.stop_clock()
        self.turns.answer(self.task.loss(model.pytorch_model.net))
        return not self.turns.wait(), Metrics()


def users(task: Task) -> FederatedDataset:
    """The clients; their samples are looked up when they are chosen."""
    order = itertools.chain.from_iterable(task.chosen(round) for round in itertools.count())

    def data(user: int) -> PyTorchTensorDataset:
        return PyTorchTensorDataset(task.of(user), user_id=str(user))

    return FederatedDataset(data, lambda: next(order))


def main() -> None:
    turns, task = Turns(), Task.read(Path(sys.argv[1]))
    learner = Learner(task.model())
    model = PyTorchModel(learner, torch.optim.SGD, torch.optim.SGD(learner.parameters(), lr=1.0))
    counts = {
        "central_num_iterations": 10**6,
        "evaluation_frequency": 10**6,
        "train_cohort_size": task.cohort,
        "val_cohort_size": 0,
    }
    if task.scaffold:
        algorithm, params = SCAFFOLD(), SCAFFOLDParams(
            population=task.clients, use_gradient_as_control_variate=False,
            user_state_storage=InMemoryUserStateStorage(), **counts,
        )  # fmt: skip
    else:
        algorithm, params = FederatedAveraging(), NNAlgorithmParams(**counts)
    backend = SimulatedBackend(users(task), users(task), [WeightByDatapoints()])
    local = NNTrainHyperParams(
        local_num_epochs=task.epochs, local_learning_rate=task.lr, local_batch_size=task.batch
    )
    turns.ready()
    if turns.wait():
        algorithm.run(
            params, backend, model, local, NNEvalHyperParams(local_batch_size=None), [Hook(turns, task)],
            send_metrics_to_platform=False,
        )  # fmt: skip


if __name__ == "__main__":
    main()
