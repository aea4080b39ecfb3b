"""The works of the benchmark, and how one is written to the disk for all contenders."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contenders.stored import ROUNDS, experiment
from contenders.task import SETTINGS, TENSORS
from mnemos.client.trainer import fresh_model
from mnemos.data.load import load
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.federation.population import Population


@dataclass(frozen=True)
class Work:
    """What is trained. Clients have `fewest` to `most` samples each."""

    label: str
    title: str
    model: dict[str, Any]
    shape: tuple[int, ...]
    clients: int
    fewest: int
    most: int
    cohort: int
    epochs: int
    batch: int
    lr: float
    tolerance: float = 0.1
    """How far from the plain loop's way down the loss may be after the first round, as a share of it."""
    method: str = "fedavg"
    classes: int = 10
    cold: bool = False
    """Whether each turn starts a process, and counts from there to the end of the first round."""

    def small(self) -> Work:
        """The same with so little to do that it only shows that it works."""
        clients = min(self.clients, 12)
        cohort = clients if self.cohort == self.clients else min(self.cohort, 3)
        model = {"name": "resnet10"} if self.model["name"] == "resnet18" else self.model
        most = min(self.most, 64)
        return replace(
            self, clients=clients, cohort=cohort, model=model, most=most, fewest=min(self.fewest, most),
            batch=min(self.batch, 32), tolerance=3 * self.tolerance,
        )  # fmt: skip


MLP = Work(
    "MLP",
    "MLP 64-128-10, 100 clients × 64 samples, all in each round, 3 epochs, batch 16",
    {"name": "mlp", "hidden": [128]}, (64,), 100, 64, 64, 100, epochs=3, batch=16, lr=0.1,
)  # fmt: skip
WORKS = {
    "a": Work(
        "LeNet",
        "LeNet, 100 clients × 448 images of 32×32×3, 10 a round, 3 epochs, batch 64",
        {"name": "lenet"}, (3, 32, 32), 100, 448, 448, 10, epochs=3, batch=64, lr=0.1, tolerance=0.3,
    ),
    "b": MLP,
    "c": Work(
        "ResNet-18",
        "ResNet-18, 2 of 4 clients × 128 images of 32×32×3 a round, 1 epoch, batch 64",
        {"name": "resnet18"}, (3, 32, 32), 4, 128, 128, 2, epochs=1, batch=64, lr=0.02, tolerance=0.3,
    ),
    "d": Work(
        "100,000 clients",
        "logistic regression 64→10, 100,000 clients × 3 to 10 samples, 1,000 a round, 1 epoch",
        {"name": "mlp", "hidden": []}, (64,), 100_000, 3, 10, 1_000, epochs=1, batch=16, lr=0.5,
    ),
    "e": replace(MLP, label="SCAFFOLD", title=f"SCAFFOLD: {MLP.title}", method="scaffold"),
    "f": Work(
        "from the command to one round",
        "from the command to the end of one round: digits, MLP 64-200-10, 10 of 100 clients",
        {"name": "mlp", "hidden": [200]}, (64,), 100, 1, 64, 10, epochs=1, batch=64, lr=0.05, cold=True,
        tolerance=0.3,
    ),
}  # fmt: skip


def write(work: Work, folder: Path) -> None:
    """Write samples, initial weights and cohorts to a folder."""
    if work.cold:
        samples, labels, sizes, cohorts = _digits()
    else:
        samples, labels, sizes = _drawn(work)
        cohorts = torch.zeros(ROUNDS, 0)
    starts = torch.cat([torch.zeros(1), sizes]).long().cumsum(0)
    settings = asdict(work) | {"clients": len(sizes)}
    folder.mkdir(parents=True)
    (folder / SETTINGS).write_text(json.dumps(settings))
    tensors = {"samples": samples, "labels": labels, "starts": starts, "cohorts": cohorts, "initial": []}
    torch.save(tensors, folder / TENSORS)
    chosen = experiment(folder, settings)
    dataset = load(chosen.data)
    initial = [value.clone() for value in fresh_model(chosen.plan, dataset).state_dict().values()]
    if not work.cold:
        population = Population(chosen, dataset)
        cohorts = torch.stack([torch.from_numpy(population.cohort(round)) for round in range(1, ROUNDS + 1)])
    torch.save(tensors | {"cohorts": cohorts, "initial": initial}, folder / TENSORS)


def _drawn(work: Work) -> tuple[Tensor, Tensor, Tensor]:
    """Random samples around a random centre for each class, which can be learnt; and the clients' sizes."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(work.fewest, work.most + 1, (work.clients,), generator=generator)
    count = int(sizes.sum())
    labels = torch.randint(work.classes, (count,), generator=generator)
    image = len(work.shape) == 3
    coarse = (work.shape[0], 4, 4) if image else work.shape  # a network sees large patterns sooner
    centres = torch.randn(work.classes, *coarse, generator=generator)
    if image:
        centres = 3 * torch.nn.functional.interpolate(centres, work.shape[1:])
    samples = torch.empty(count, *work.shape, dtype=torch.uint8 if image else torch.float32)
    for rows in torch.split(torch.arange(count), 1024):
        noise = torch.randn(len(rows), *work.shape, generator=generator)
        values = 0.5 * centres[labels[rows]] + noise
        samples[rows] = (127.5 + 40 * values).clamp(0, 255).to(torch.uint8) if image else values
    return samples, labels, sizes


def _digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The digits as `mnemos run` gives them to its clients, and the cohorts of its rounds."""
    federation = Federation(Experiment.parse({"rounds": ROUNDS}))
    assignment, dataset = federation.assignment, federation.dataset
    order, _ = assignment.training()
    rows = torch.from_numpy(order)
    scale = torch.tensor(dataset.mean[0]), torch.tensor(dataset.std[0])
    samples = ((dataset.train.samples[rows].float() - scale[0]) / scale[1]).flatten(1)
    sizes = torch.from_numpy(assignment.train_sizes())
    cohorts = torch.stack([torch.from_numpy(federation.cohort(round)) for round in range(1, ROUNDS + 1)])
    federation.close()
    return samples, dataset.train.labels[rows], sizes, cohorts
