"""The samples that a question is about, and how models do on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mnemos.client.trainer import fresh_model
from mnemos.data.augment import normalise
from mnemos.data.dataset import Split
from mnemos.data.partition import Ints
from mnemos.federation.federation import Federation
from mnemos.measures.continual import On
from mnemos.methods.exchange import Server
from mnemos.models.dropout import without_dropout
from mnemos.models.functional import Functional
from mnemos.runs.why.ledger import Subject

_CHUNK = 512


class Score(NamedTuple):
    """How a model does on the samples of a subject."""

    right: int
    """How many it answers correctly."""
    loss: float
    """Its mean cross-entropy."""


@dataclass(frozen=True)
class Samples:
    """The validation or test samples of a federation, of which some are a subject's."""

    federation: Federation
    on: On
    subject: Subject

    @cached_property
    def classes(self) -> Ints:
        """The subject's classes."""
        kind, number = self.subject
        if kind == "all":
            return np.arange(len(self.federation.dataset.classes))
        return np.array([number]) if kind == "class" else self.federation.flow.tasks[number]

    @property
    def split(self) -> Split:
        """The part of the data set that they are from."""
        return self.federation.dataset.test if self.on == "test" else self.federation.dataset.train

    @cached_property
    def indices(self) -> Tensor | None:
        """Which of the split's samples they are; None: all."""
        if self.on == "test":
            return None
        return torch.from_numpy(self.federation.assignment.union_held_out())

    @cached_property
    def wanted(self) -> Tensor:
        """Which of these samples are the subject's."""
        labels = self.split.labels if self.indices is None else self.split.labels[self.indices]
        return torch.isin(labels, torch.from_numpy(self.classes))

    @property
    def count(self) -> int:
        """How many samples the subject has."""
        return int(self.wanted.sum())

    def score(self, servers: Sequence[Server]) -> Score:
        """How the federation's model does on the subject's samples."""
        found = self.federation.evaluation.evaluate(servers, self.split, self.indices).together
        losses = found.losses[self.wanted].double().numpy()
        return Score(int(found.hits[self.wanted].sum()), float(losses.mean()))

    def held_by(self, client: int, round: int) -> int:
        """How many training samples of the subject a client has in a round."""
        flow = self.federation.flow.if_asked
        labels = self.federation.dataset.train.labels.numpy()[flow.samples(client, round)]
        return int(np.isin(labels, self.classes).sum())

    def gradient(self, server: Server) -> Tensor | None:
        """∇L(x): the gradient of the subject's mean cross-entropy at the server's model.

        None if clients have several kinds of models.
        """
        groups = self.federation.groups
        if len(groups) > 1 or len(server.model) != groups[0].layout.size:
            return None
        group, dataset = groups[0], self.federation.dataset
        functional = Functional(without_dropout(fresh_model(group.plan, dataset)).to(group.device))
        chosen = self.wanted if self.indices is None else self.indices[self.wanted]
        samples, labels = self.split.samples[chosen], self.split.labels[chosen]
        mean, std = torch.tensor(dataset.mean), torch.tensor(dataset.std)
        model = server.model.detach().clone().requires_grad_()
        total = torch.zeros_like(server.model)
        with functional.training(group.method.buffers.in_batches), torch.enable_grad():
            for start in range(0, len(labels), _CHUNK):
                where = slice(start, start + _CHUNK)
                x, y = normalise(samples[where], mean, std).to(group.device), labels[where].to(group.device)
                logits = group.method.head.read(functional.net(server.model, server.buffers).at(model)(x))
                loss = F.cross_entropy(logits, y, reduction="sum")
                total += torch.autograd.grad(loss, model)[0]
        return total / len(labels)
