"""PASS with FedAvg: each client's own prototypes (Zhu, Zhang, Wang, Yin, Liu, 2021, CVPR)."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from mnemos.methods.exchange import Batch, Client, Finished, Net, State
from mnemos.methods.head import check_classifier, classifier
from mnemos.methods.method import methods
from mnemos.methods.part import Term, terms
from mnemos.methods.presets.fedspace import Rotated
from mnemos.methods.terms.prototypes import Prototypes
from mnemos.optim.local import Local
from mnemos.vector import Layout

_LAST = "feature-distillation.last"
_TEACHER = "feature-distillation.teacher"
_TASKS = "feature-distillation.tasks"
_CLASSES = "feature-distillation.classes"


@terms.register("feature-distillation")
class FeatureDistillation(Term):
    """Keeps features close to those of the client's model at the end of its previous task.

    λ ‖F − F_old‖₂: features stay close to those of the client's model at the end of its previous task.

    F [B, d] are the features of all samples of the batch; the norm is of the whole matrix, neither squared
    nor divided by their number. A client keeps its model at the end of each round. When its classes have
    changed since, that model becomes the old one. In the first task, the term is 0.
    """

    wants_features: ClassVar[bool] = True

    weight: float = Field(10.0, gt=0, description="λ")

    def check(self, layout: Layout, local: Local, classes: int) -> None:
        """Raise a ConfigError unless there is a classifier with a row for each class."""
        check_classifier(layout, classes, "method.terms")

    def client_state(self, layout: Layout) -> State:
        """No task yet."""
        classes = classifier(layout)[0].shape[0] // self._head.outputs
        nothing = {_LAST: layout.zeros(), _TEACHER: layout.zeros()}
        return {**nothing, _TASKS: torch.zeros(()), _CLASSES: torch.zeros(classes)}

    def _tasks(self, client: Client) -> Tensor:
        """The number of tasks that the client has had, including the current one."""
        changed = (client.state[_CLASSES] != _has(client)).any()
        return client.state[_TASKS] + changed.float()

    def _teacher(self, client: Client) -> Tensor:
        """The model at the end of the previous task."""
        moved = self._tasks(client) > client.state[_TASKS]
        return torch.where(moved, client.state[_LAST], client.state[_TEACHER])

    def losses(self, net: Net, batch: Batch, features: Tensor, client: Client) -> Tensor | float:
        """The same number for each sample."""
        with torch.no_grad():
            old, _ = net.at(self._teacher(client)).features(batch.x)
        squares = batch.sum((features - old).square().sum(1))
        # The gradient of a square root at 0 is infinite; here it is 0.
        distance = torch.where(squares > 0, squares, 1.0).sqrt() * (squares > 0)
        return self.weight * torch.where(self._tasks(client) > 1, distance, 0.0)

    def upload(self, done: Finished) -> tuple[State, State]:
        """The client keeps its model, the teacher, and its tasks and classes; nothing is sent."""
        client = done.client
        kept = {_LAST: done.end, _TEACHER: self._teacher(client), _TASKS: self._tasks(client)}
        return {}, {**kept, _CLASSES: _has(client)}


def _has(client: Client) -> Tensor:
    """1 for the classes of the client's current samples."""
    return (client.held > 0).float()


@methods.register("pass")
class Pass(Rotated):
    """FedAvg whose clients use prototypes of their own past tasks; prototypes aren't averaged.

    The default weight of 0.01, without distillation, is that of FedSpace's comparison; the original paper has
    10 for both.
    """

    prototype_weight: float = Field(0.01, ge=0, description="λ of the term `prototypes`")
    current: bool = Field(
        True, description="pseudo-features of present classes too, as in FedSpace's comparison"
    )
    distillation: float = Field(0.0, ge=0, description="λ of the term `feature-distillation`")

    @property
    def own_terms(self) -> tuple[Term, ...]:
        """The prototypes, and the distillation if it has a weight."""
        prototypes = Prototypes(
            weight=self.prototype_weight, aggregate=False, radius="first", current=self.current
        )
        if not self.distillation:
            return (prototypes,)
        return prototypes, FeatureDistillation(weight=self.distillation)
