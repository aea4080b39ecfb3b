"""The smallest federation of classifiers: two logits on a constant input, of which the difference matters."""

import torch
from torch import nn

from mnemos.data.dataset import Dataset, Source, Split
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation


class Bernoulli(Source):
    """Constant input and two classes: client 0 holds three samples of class 0, client 1 one of class 1."""

    def load(self):
        split = Split(torch.ones(4, 1), torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 0, 1]))
        return Dataset("bernoulli", split, split, ("a", "b"), (0.0,), (1.0,), ("x", "y"))


class Zero(nn.Linear):
    """A linear layer without bias whose weights start at zero."""

    def __init__(self):
        super().__init__(1, 2, bias=False)
        nn.init.zeros_(self.weight)


def bernoulli(method, epochs=1, **changes):
    """Both clients in every round, full batches, η = 1."""
    return Federation(
        Experiment.parse(
            {
                "data": Bernoulli(),
                "partition": {"name": "natural", "validation": 0},
                "model": {"name": "support.bernoulli:Zero"},
                "method": method,
                "local": {"epochs": epochs, "batch": 4, "lr": 1.0},
                "participation": 1.0,
                "rounds": 3,
                "engine": "serial",
                **changes,
            }
        )
    )
