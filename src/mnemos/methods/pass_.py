"""PASS with FedAvg: each client's own prototypes (Zhu, Zhang, Wang, Yin, Liu, 2021, CVPR)."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from mnemos.local import Local
from mnemos.methods.exchange import Batch, Client, Finished, Net, State
from mnemos.methods.fedspace import Rotated
from mnemos.methods.head import check_classifier, classifier
from mnemos.methods.method import methods
from mnemos.methods.part import Term, terms
from mnemos.methods.prototypes import Prototypes
from mnemos.vector import Layout

_LAST = "feature-distillation.last"
_TEACHER = "feature-distillation.teacher"
_TASKS = "feature-distillation.tasks"
_CLASSES = "feature-distillation.classes"


@terms.register("feature-distillation")
class FeatureDistillation(Term):
    """λ ‖F − F_old‖₂: features of the batch stay near those of the model at the end of the task before.

    F [B, d] are the features of all samples of the batch; the norm is of the whole matrix, neither squared
    nor divided by their number. Between rounds a client remembers the model it ended the last one with, and
    when its classes have changed since, that model is the old one. In a first task the term is 0.
    """

    wants_features: ClassVar[bool] = True

    weight: float = Field(10.0, gt=0, description="λ")

    def check(self, layout: Layout, local: Local, classes: int) -> None:
        """Classes are those of the classifier."""
        check_classifier(layout, classes, "method.terms")

    def client_state(self, layout: Layout) -> State:
        """No task yet."""
        classes = classifier(layout)[0].shape[0] // self._head.outputs
        nothing = {_LAST: layout.zeros(), _TEACHER: layout.zeros()}
        return {**nothing, _TASKS: torch.zeros(()), _CLASSES: torch.zeros(classes)}

    def _tasks(self, client: Client) -> Tensor:
        """How many tasks the client has had, this one included."""
        changed = (client.state[_CLASSES] != _has(client)).any()
        return client.state[_TASKS] + changed.float()

    def _teacher(self, client: Client) -> Tensor:
        """The model at the end of the task before."""
        moved = self._tasks(client) > client.state[_TASKS]
        return torch.where(moved, client.state[_LAST], client.state[_TEACHER])

    def losses(self, net: Net, batch: Batch, features: Tensor, client: Client) -> Tensor | float:
        """The same number for each sample."""
        with torch.no_grad():
            old, _ = net.at(self._teacher(client)).features(batch.x)
        squares = batch.sum((features - old).square().sum(1))
        # A root has no slope at 0, where the gradient is taken to be 0.
        distance = torch.where(squares > 0, squares, 1.0).sqrt() * (squares > 0)
        return self.weight * torch.where(self._tasks(client) > 1, distance, 0.0)

    def upload(self, done: Finished) -> tuple[State, State]:
        """Nothing is sent."""
        client = done.client
        kept = {_LAST: done.end, _TEACHER: self._teacher(client), _TASKS: self._tasks(client)}
        return {}, {**kept, _CLASSES: _has(client)}


def _has(client: Client) -> Tensor:
    """1 for the classes of the client's present samples."""
    return (client.held > 0).float()


@methods.register("pass")
class Pass(Rotated):
    """Clients go by prototypes of their own past tasks; models are averaged, prototypes aren't.

    The weight of 0.01 is that of FedSpace's comparison, which has no distillation; the original has 10 for
    both.
    """

    prototype_weight: float = Field(0.01, ge=0, description="λ of the term `prototypes`")
    current: bool = Field(
        True, description="pseudo-features of present classes too, as in FedSpace's comparison"
    )
    distillation: float = Field(0.0, ge=0, description="λ of the term `feature-distillation`")

    @property
    def own_terms(self) -> tuple[Term, ...]:
        """Its prototypes, and the distillation if it is asked for."""
        prototypes = Prototypes(
            weight=self.prototype_weight, aggregate=False, radius="first", current=self.current
        )
        if not self.distillation:
            return (prototypes,)
        return prototypes, FeatureDistillation(weight=self.distillation)
