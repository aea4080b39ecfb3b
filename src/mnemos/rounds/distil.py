"""Co-distillation: models of any layouts that learn from each other's predictions on shared samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mnemos import rng
from mnemos.client import fresh_model, intra_op
from mnemos.data.batches import Draw, Loader, even
from mnemos.data.dataset import Dataset
from mnemos.data.partition import Ints
from mnemos.errors import ConfigError
from mnemos.message import Plan
from mnemos.methods.meta import descend
from mnemos.models.dropout import without_dropout
from mnemos.models.functional import Functional, FunctionalNet
from mnemos.models.mixed import CoDistillation


class Voice(NamedTuple):
    """One that speaks and listens in an exchange."""

    which: int
    """The place of its model among the federation's."""
    model: Tensor
    buffers: Tensor


def shared(exchange: CoDistillation, rest: Ints, seed: int) -> Ints:
    """Which of the training samples that are left become the shared ones."""
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
    """Lets models learn from each other on some input, by whatever way that input was come by.

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
    def __call__(self, voices: Sequence[Voice]) -> list[Tensor]:
        """The voices' models after the exchange, in which all speak before anyone listens."""
        if len(voices) < 2:
            return [voice.model for voice in voices]
        with intra_op(1):
            said = [self._predictions(voice) for voice in voices]
            return [
                self._listen(voice, said[:place] + said[place + 1 :]) for place, voice in enumerate(voices)
            ]

    def _predictions(self, voice: Voice) -> list[Tensor]:
        """Softened probabilities of each chunk's samples."""
        functional = self._models[voice.which]
        with functional.training(self._in_batches):
            net = functional.net(voice.model, voice.buffers).at(voice.model)
            return [(net(x) / self._options.temperature).softmax(-1) for x in self._inputs]

    def _listen(self, voice: Voice, others: list[list[Tensor]]) -> Tensor:
        teachers = [torch.stack(chunk).mean(0) for chunk in zip(*others, strict=True)]
        functional, options = self._models[voice.which], self._options
        count = sum(map(len, self._inputs))

        def loss(model: Tensor, x: Tensor, teacher: Tensor) -> Tensor:
            net: FunctionalNet = functional.net(voice.model, voice.buffers).at(model)
            return divergence(net(x), teacher, options.temperature).sum() / count

        pairs = zip(self._inputs, teachers, strict=True)
        losses = [partial(loss, x=x, teacher=teacher) for x, teacher in pairs]
        with functional.training(self._in_batches):
            return descend(voice.model, losses, options.lr, options.steps)


def divergence(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T² KL(p ‖ softmax(f / T)) [B] of logits f and a teacher's probabilities p, both [B, classes].

    The factor T² keeps gradients about as large at any temperature: at the logits they are T (q − p).
    """
    student = (logits / temperature).log_softmax(-1)
    entropy = torch.xlogy(teacher, teacher).sum(-1)
    return temperature**2 * (entropy - (teacher * student).sum(-1))
