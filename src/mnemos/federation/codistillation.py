"""Co-distillation: models of any layouts that learn from each other's predictions on shared samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mnemos.client.messages import Plan
from mnemos.client.trainer import fresh_model, intra_op
from mnemos.common import rng
from mnemos.data.batches import Draw, Loader, even
from mnemos.data.dataset import Dataset
from mnemos.data.partition import Ints
from mnemos.errors import ConfigError
from mnemos.methods.meta import descend
from mnemos.models.dropout import without_dropout
from mnemos.models.functional import Functional, FunctionalNet
from mnemos.models.mixed import CoDistillation


class ExchangedModel(NamedTuple):
    """A model that takes part in an exchange."""

    group: int
    """The group of clients whose kind of model it is."""
    model: Tensor
    buffers: Tensor


def exchanged_samples(exchange: CoDistillation, rest: Ints, seed: int) -> Ints:
    """The training samples, of those that are left, on which models exchange predictions (indices)."""
    if exchange.samples >= len(rest):
        raise ConfigError(
            f"found {exchange.samples}; there are {len(rest)} training samples, and clients need some",
            "model.exchange.samples",
        )
    chosen: Ints = rng.numpy_generator(seed, "co-distillation").choice(rest, exchange.samples, replace=False)
    return np.sort(chosen)


def unlabelled(dataset: Dataset, samples: Ints) -> list[Tensor]:
    """Training samples as input for models, in even chunks, without their labels."""
    loader = Loader(dataset, (), channels_last=False)
    return [loader(Draw(chunk, chunk))[0] for chunk in even(torch.from_numpy(samples))]


class Exchange:
    """Lets models learn from each other's predictions on some input.

    Dropout is off, and batch-norm takes its running statistics (those of the chunk where the method leaves
    them out), so that what a model says here is what it says when it is evaluated.
    """

    def __init__(
        self, options: CoDistillation, plans: Sequence[Plan], dataset: Dataset, inputs: list[Tensor]
    ) -> None:
        self._options = options
        self._in_batches = plans[0].method.buffers.in_batches
        self._models = [Functional(without_dropout(fresh_model(plan, dataset))) for plan in plans]
        self._inputs = inputs
        count = sum(map(len, inputs))
        self.bytes = 4 * count * len(dataset.classes) * plans[0].method.head.outputs
        """How large one model's predictions are."""

    def due(self, round: int) -> bool:
        """Whether models learn from each other after this round."""
        return round % self._options.every == 0

    @torch.no_grad()
    def __call__(self, models: Sequence[ExchangedModel]) -> list[Tensor]:
        """The models after the exchange; all predictions are made before any model learns from them."""
        if len(models) < 2:
            return [student.model for student in models]
        with intra_op(1):
            predictions = [self._predictions(model) for model in models]
            return [
                self._distil(model, predictions[:index] + predictions[index + 1 :])
                for index, model in enumerate(models)
            ]

    def _predictions(self, student: ExchangedModel) -> list[Tensor]:
        """Softened probabilities of each chunk's samples."""
        functional = self._models[student.group]
        with functional.training(self._in_batches):
            net = functional.net(student.model, student.buffers).at(student.model)
            return [(net(x) / self._options.temperature).softmax(-1) for x in self._inputs]

    def _distil(self, student: ExchangedModel, others: list[list[Tensor]]) -> Tensor:
        """The model after its steps towards the mean of the others' predictions."""
        teachers = [torch.stack(chunk).mean(0) for chunk in zip(*others, strict=True)]
        functional, options = self._models[student.group], self._options
        count = sum(map(len, self._inputs))

        def loss(model: Tensor, x: Tensor, teacher: Tensor) -> Tensor:
            net: FunctionalNet = functional.net(student.model, student.buffers).at(model)
            return divergence(net(x), teacher, options.temperature).sum() / count

        pairs = zip(self._inputs, teachers, strict=True)
        losses = [partial(loss, x=x, teacher=teacher) for x, teacher in pairs]
        with functional.training(self._in_batches):
            return descend(student.model, losses, options.lr, options.steps)


def divergence(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T² KL(p ‖ softmax(f / T)) [B] of logits f and a teacher's probabilities p, both [B, classes].

    The factor T² keeps gradients about as large at any temperature: at the logits they are T (q − p).
    """
    student = (logits / temperature).log_softmax(-1)
    entropy = torch.xlogy(teacher, teacher).sum(-1)
    return temperature**2 * (entropy - (teacher * student).sum(-1))
