"""Learning from samples that no client holds: the meta step, and co-distillation between models."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from mnemos.common.devices import CPU, send
from mnemos.data.batches import Draw, Loader, even
from mnemos.data.dataset import Dataset
from mnemos.data.partition import Ints
from mnemos.methods.exchange import Batch, Server
from mnemos.methods.meta import Meta, descend
from mnemos.methods.method import Method
from mnemos.models.functional import Functional
from mnemos.models.mixed import CoDistillation


def server_batches(dataset: Dataset, samples: Ints, device: torch.device = CPU) -> list[Batch]:
    """Training samples (indices) as input for models on a device, in even chunks."""
    indices = torch.from_numpy(samples)
    loader = Loader(dataset, (), channels_last=False, device=device).of(indices)
    places = torch.arange(len(indices))
    chunks = send(list(zip(even(indices), even(places), strict=True)), device)
    return [Batch(*loader(Draw(*chunk))) for chunk in chunks]


class MetaStep:
    """Moves the server's model along the gradient of its own samples, in batches of a fixed size.

    Batch-norm normalises by those batches, as in training, and keeps its statistics as they are.
    """

    def __init__(
        self, meta: Meta, method: Method, model: Functional, dataset: Dataset, samples: Ints
    ) -> None:
        """`model`: without dropout; `samples`: indices of the server's samples."""
        self._meta, self._loss, self._model = meta, method.objective, model
        device = model.device
        self._batches = [method.head.upright(batch) for batch in server_batches(dataset, samples, device)]
        labels = dataset.train.labels[torch.from_numpy(samples)]
        counts = torch.bincount(labels, minlength=len(dataset.classes)).float().to(device)
        self._counts = method.head.per_output(counts)

    @torch.no_grad()
    def __call__(self, server: Server) -> Server:
        """The server after its step."""

        def loss(model: Tensor, batch: Batch) -> Tensor:
            net = self._model.net(server.model, server.buffers).at(model)
            return self._loss(net(batch.x), batch.labels, self._counts).sum() / self._meta.samples

        losses = [partial(loss, batch=batch) for batch in self._batches]
        return server.moved(self._meta.step(server.model, losses), {})


class Student(NamedTuple):
    """A model that takes part in an exchange of predictions."""

    functional: Functional
    """The kind of model, without dropout."""
    model: Tensor
    buffers: Tensor

    def predictions(self, inputs: Sequence[Tensor], temperature: float) -> list[Tensor]:
        """Softened probabilities of each chunk's samples."""
        net = self.functional.net(self.model, self.buffers).at(self.model)
        return [(net(x) / temperature).softmax(-1) for x in inputs]

    def distil(self, inputs: Sequence[Tensor], others: list[list[Tensor]], options: CoDistillation) -> Tensor:
        """The model after its steps towards the mean of the others' predictions."""
        teachers = [torch.stack(chunk).mean(0) for chunk in zip(*others, strict=True)]
        count = sum(map(len, inputs))

        def loss(model: Tensor, x: Tensor, teacher: Tensor) -> Tensor:
            logits = self.functional.net(self.model, self.buffers).at(model)(x)
            return divergence(logits, teacher, options.temperature).sum() / count

        losses = [partial(loss, x=x, teacher=p) for x, p in zip(inputs, teachers, strict=True)]
        return descend(self.model, losses, options.lr, options.steps)


@torch.no_grad()
def codistil(
    students: Sequence[Student], inputs: Sequence[Tensor], options: CoDistillation, *, in_batches: bool
) -> list[Tensor]:
    """The models after an exchange; all predictions are made before any model learns from them.

    Batch-norm uses running statistics, or with `in_batches` those of the chunk, as in the evaluation: so a
    model predicts here what it predicts there.
    """
    if len(students) < 2:
        return [student.model for student in students]
    with ExitStack() as modes:
        for functional in {id(student.functional): student.functional for student in students}.values():
            modes.enter_context(functional.training(in_batches))
        predictions = [student.predictions(inputs, options.temperature) for student in students]
        return [
            student.distil(inputs, predictions[:index] + predictions[index + 1 :], options)
            for index, student in enumerate(students)
        ]


def divergence(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T² KL(p ‖ softmax(f / T)) [B] of logits f and a teacher's probabilities p, both [B, classes].

    The factor T² keeps gradients about as large at any temperature: at the logits they are T (q − p).
    """
    student = (logits / temperature).log_softmax(-1)
    entropy = torch.xlogy(teacher, teacher).sum(-1)
    return temperature**2 * (entropy - (teacher * student).sum(-1))
