"""Gradients of many clients in closed form, where model and loss allow it: without `vmap` and autograd.

The model is a chain of linear layers and ReLUs, and the loss one of its logits alone. Sums are taken in
another order than by autograd, so the last bits differ, as those of `vmap` do.
"""

from __future__ import annotations

import math

from torch import Tensor
from torch.func import grad_and_value

from mnemos.client.messages import Plan
from mnemos.client.step import Trainees
from mnemos.methods.exchange import Batch, Client
from mnemos.models.chain import Chain
from mnemos.models.functional import Functional
from mnemos.objectives.objective import Objective
from mnemos.objectives.softmax import nll_slopes


def in_closed_form(plan: Plan, functional: Functional, shape: tuple[int, ...]) -> bool:
    """Whether a plan's gradients can be computed in closed form, from samples of a shape."""
    single, chain = plan.local.precision == "float32", functional.chain
    return single and chain is not None and chain.inputs == math.prod(shape) and plan.method.only_objective


def closed_form(rows: Trainees, chain: Chain, points: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Gradients [K, P] at `points` [K, P], and losses [K], of one batch per client."""
    logits, inputs = chain.forward(points, batch.x)
    slopes, losses = _slopes(rows, logits, batch)
    return chain.backward(points, inputs, slopes), losses


def _slopes(rows: Trainees, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """(the gradient of each client's mean loss with respect to its logits [K, C, B], the losses [K])."""
    objective = rows.plan.method.objective
    if isinstance(objective, Objective) and objective.over_all_classes:
        slopes, losses = nll_slopes(logits, batch.labels)
        if batch.mask is None:
            return slopes.div_(losses.shape[1]), losses.mean(1)
        shares = batch.mask / batch.mask.sum(1, keepdim=True)
        return slopes.mul_(shares.unsqueeze(1)), losses.mul_(shares).sum(1)

    def of_one(logits: Tensor, batch: Batch, client: Client) -> tuple[Tensor, Tensor]:
        def mean_loss(logits: Tensor) -> Tensor:
            return batch.mean(objective(logits, batch.labels, client.counts))

        found: tuple[Tensor, Tensor] = grad_and_value(mean_loss)(logits)
        return found

    slopes, losses = rows.apply(of_one, logits.mT, batch)
    return slopes.mT, losses
