"""Batch-norm for many clients at once.

Under `vmap` PyTorch's batch-norm can neither update running statistics nor ignore the samples that pad a
client's last batch. This one does both, with the same formula:

    y = (x − μ) / √(σ² + ε) · γ + β,   μ, σ² over the client's real samples,
    running ← (1 − m) · running + m · (μ, σ² n / (n − 1)).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class MaskedBatchNorm(nn.Module):
    """Batch-norm whose new statistics are left in `updated` instead of written in place."""

    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(self, original: _BatchNorm) -> None:
        super().__init__()
        self.eps = original.eps
        self.momentum = original.momentum
        self.register_parameter("weight", original.weight)
        self.register_parameter("bias", original.bias)
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(original, name))
        self.mask: Tensor | None = None
        self.updated: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        """Normalise a batch [B, C, …] of which `mask` [B] marks the real samples."""
        if x.dtype in (torch.bfloat16, torch.float16):  # whose sums would be too rough
            return self.forward(x.float()).to(x.dtype)
        shape = [1, -1] + [1] * (x.ndim - 2)
        if not self.training and self.running_mean is not None and self.running_var is not None:
            return self._affine(x, self.running_mean, self.running_var, shape)
        over = [dim for dim in range(x.ndim) if dim != 1]
        if self.mask is None:
            count = x.new_full((), float(x.numel() // x.shape[1]))
            variance, mean = torch.var_mean(x, over, correction=0)
        else:
            real = self.mask.view([-1, 1] + [1] * (x.ndim - 2))
            count = self.mask.sum() * x[0, 0].numel()
            mean = (x * real).sum(over) / count
            variance = ((x - mean.view(shape)).square() * real).sum(over) / count
        self.updated = self._blend(mean.detach(), variance.detach(), count)
        return self._affine(x, mean, variance, shape)

    def _affine(self, x: Tensor, mean: Tensor, variance: Tensor, shape: list[int]) -> Tensor:
        scale = torch.rsqrt(variance + self.eps)
        if self.weight is not None:
            scale = scale * self.weight
        y = (x - mean.view(shape)) * scale.view(shape)
        return y if self.bias is None else y + self.bias.view(shape)

    def _blend(self, mean: Tensor, variance: Tensor, count: Tensor) -> dict[str, Tensor]:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return {}
        # A layer that is used twice in one pass continues from its own first update.
        before = self.updated or {
            "running_mean": self.running_mean,
            "running_var": self.running_var,
            "num_batches_tracked": self.num_batches_tracked,
        }
        batches = before["num_batches_tracked"] + 1
        share = 1 / batches if self.momentum is None else self.momentum
        unbiased = variance * (count / (count - 1))
        return {
            "running_mean": (1 - share) * before["running_mean"] + share * mean,
            "running_var": (1 - share) * before["running_var"] + share * unbiased,
            "num_batches_tracked": batches,
        }


def mask_batch_norm(module: nn.Module) -> dict[str, MaskedBatchNorm]:
    """Replace every batch-norm that is in training mode, and return the replacements by name."""
    replaced: dict[nn.Module, MaskedBatchNorm] = {}
    found: dict[str, MaskedBatchNorm] = {}
    for name, part in list(module.named_modules(remove_duplicate=False)):
        if isinstance(part, _BatchNorm) and part.training:
            owner, _, leaf = name.rpartition(".")
            if part not in replaced:
                replaced[part] = found[name] = MaskedBatchNorm(part)
            setattr(module.get_submodule(owner), leaf, replaced[part])
    return found
