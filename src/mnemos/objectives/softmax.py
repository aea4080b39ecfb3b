"""Functions that the losses share: the negative log-likelihood of re-weighted or calibrated logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import nll_loss

from mnemos.common.kept import kept

_LARGE = 128.0
"""Above this absolute value, the spacing of float32 numbers exceeds 10⁻⁵."""


def wide(logits: Tensor) -> Tensor:
    """The logits in float32 at least: sums of exponentials lose too much in half precision."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits


def near_zero(scores: Tensor, counted: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """The scores [B, C] minus their sample's largest one if that is beyond ±128; otherwise unchanged.

    A constant that is added to all of a sample's scores doesn't change a loss, but its precision: near 10⁴,
    float32 numbers are 0.001 apart. Differences of scores are exact, or large themselves. Ordinary scores are
    unchanged, so that no bit of a loss or its gradient changes.

    `counted` maps scores to those whose exponentials are summed; the largest one of these is subtracted.
    """
    # Inside a transform values can't be inspected, and on a device the program would wait for them.
    if scores.device.type == "cpu" and not torch._C._are_functorch_transforms_active():
        least, most = scores.detach().aminmax()
        if float(most) <= _LARGE and float(least) >= -_LARGE:
            return scores
    found = (scores if counted is None else counted(scores)).detach().amax(1, keepdim=True)
    return scores - torch.hardshrink(found, _LARGE)


def pick(scores: Tensor, labels: Tensor) -> Tensor:
    """Each sample's score at its own label [B]."""
    return scores.gather(1, labels.unsqueeze(1)).squeeze(1)


def nll(scores: Tensor, labels: Tensor, added: Tensor | None = None) -> Tensor:
    """−s_y + log Σ_c exp(s_c + a_c) for each sample [B], of scores from `near_zero`; a: constants, or 0."""
    if scores.device.type == "cpu" or torch._C._are_functorch_transforms_active():
        summed = scores if added is None else scores + added
        return summed.logsumexp(1) - pick(scores, labels)
    losses: Tensor = _Nll.apply(scores, labels, added)  # type: ignore[no-untyped-call]
    return losses


class _Nll(torch.autograd.Function):
    """`nll` for a device: the same operations, and so the same bits, without those that change nothing.

    PyTorch's `logsumexp` makes sure in three kernels that the largest score is finite, which that of
    `near_zero` is, or the loss isn't finite either. Backwards, it and `gather` each make a matrix, and a
    third one is their sum. The logarithms of the softmax, z_c = s_c + a_c − log Σ exp(s + a), are kept for
    the way back; where nothing is added, −z_y is the loss, rounded as the other difference is.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, labels: Tensor, added: Tensor | None) -> Tensor:
        """Losses [B]."""
        summed = scores if added is None else scores + added
        most = summed.amax(1, keepdim=True)
        total = (summed - most).exp_().sum(1, keepdim=True).log_().add_(most)
        logs = summed - total
        ctx.save_for_backward(logs, labels)
        if added is None:
            return nll_loss(logs, labels, reduction="none")
        return total.squeeze(1) - pick(scores, labels)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """The softmax, with 1 subtracted at the label, times the gradient of each loss."""
        logs, labels = ctx.saved_tensors
        found = logs.exp().mul_(gradient.unsqueeze(1))
        # The gradient of a mean is the same tensor in all steps.
        return found.scatter_add_(1, labels.unsqueeze(1), _negative(gradient).unsqueeze(1)), None, None


_negative = kept(torch.neg)


def nll_slopes(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(the gradient of each sample's `nll` with respect to its scores [K, C, B], the losses [K, B]).

    `scores` [K, C, B] and `labels` [K, B] are of K clients; the gradient of −s_y + log Σ_c exp s_c is the
    softmax, with 1 subtracted at the label.
    """
    logs, places = scores.log_softmax(1), labels.unsqueeze(1)
    losses = logs.gather(1, places).squeeze(1).neg_()
    return logs.exp_().scatter_add_(1, places, logs.new_full((), -1.0).expand(places.shape)), losses


_NOTHING = -1e30
"""In place of −∞: its exponential is 0, and sums and differences with logits stay finite."""


def only_held(scores: Tensor, counts: Tensor) -> Tensor:
    """The scores, with those of classes that the client doesn't hold at `_NOTHING`."""
    return scores.masked_fill(_missing(counts), _NOTHING)


@kept
def _missing(counts: Tensor) -> Tensor:
    """Which classes the client doesn't hold."""
    return ~(counts > 0)


@kept
def log_proportions(counts: Tensor) -> Tensor:
    """log β_c with β_c = n_c / Σ n, to be added to scores: the exponential is then 0 for absent classes."""
    # log β is the log-softmax of log n. Few operations, because they may run in every step.
    return counts.log().clamp_min(_NOTHING).log_softmax(0)
