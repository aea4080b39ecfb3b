"""Convolutions whose weight gradient is a matrix product.

On CPUs without AVX-512 the weight gradient is the slow third of a convolution in PyTorch: half the speed
of the other two. For channels-last images it can be computed as a product of two matrices,

    ∂L/∂W = Gᵀ · cols(x),   G [N·H'·W', C_out],   cols(x) [N·H'·W', k·k·C_in],

a few images at a time so that the columns stay in the cache (see `benchmarks/engine.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_CACHE = 1_000_000
"""Numbers of `cols(x)` in memory at a time: few enough for a cache, many enough for a fast product."""
_MIN_CHANNELS = 16
"""With fewer input channels the columns are too narrow, and PyTorch's own way is faster."""


def fast_convolutions(module: nn.Module) -> None:
    """Make every convolution of a module that gains by it compute its weight gradient as a product."""
    for layer in module.modules():
        if type(layer) is nn.Conv2d and _gains(layer):
            layer.__class__ = _FastConv2d


def _gains(layer: nn.Conv2d) -> bool:
    return (
        layer.groups == 1
        and layer.dilation == (1, 1)
        and layer.kernel_size != (1, 1)
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
        and layer.in_channels >= _MIN_CHANNELS
    )


class _FastConv2d(nn.Conv2d):
    """A `Conv2d` with the weight gradient of this module; everything else is inherited."""

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if not torch.is_grad_enabled() or not x.is_contiguous(memory_format=torch.channels_last):
            plain: Tensor = super()._conv_forward(x, weight, bias)
            return plain
        convolve: Callable[..., Tensor] = _Convolve.apply
        return convolve(x, weight, bias, self.stride, self.padding)


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: tuple[int, int],
        padding: tuple[int, int],
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.padding, ctx.bias = stride, padding, bias is not None
        return F.conv2d(x, weight, bias, stride, padding)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        of_x = of_bias = None
        if wants_x or wants_bias:
            of_x, _, of_bias = torch.ops.aten.convolution_backward(
                gradient,
                x,
                weight,
                [weight.shape[0]] if ctx.bias else None,
                ctx.stride,
                ctx.padding,
                (1, 1),
                False,
                (0, 0),
                1,
                [wants_x, False, wants_bias],
            )
        of_weight = (
            weight_gradient(x, gradient, weight.shape, ctx.stride, ctx.padding) if wants_weight else None
        )
        return of_x, of_weight, of_bias, None, None


def weight_gradient(
    x: Tensor, gradient: Tensor, shape: torch.Size, stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    """∂L/∂W [C_out, C_in, k, k] of a convolution, from channels-last input and gradient."""
    (count, height, width), (out, channels, rows, columns) = _outer(gradient), shape
    image = F.pad(x.permute(0, 2, 3, 1), (0, 0, padding[1], padding[1], padding[0], padding[0]))
    per_image, per_row, per_column, _ = image.stride()
    # A row of the kernel is contiguous in memory: `columns` pixels of all channels.
    windows = image.as_strided(
        (count, height, width, rows, columns * channels),
        (per_image, per_row * stride[0], per_column * stride[1], per_row, 1),
    )
    flat = gradient.permute(0, 2, 3, 1).reshape(count, height * width, out)
    patch = rows * columns * channels
    step = max(1, _CACHE // (height * width * patch))
    buffer = x.new_empty(min(step, count), height, width, rows, columns * channels)
    total = x.new_zeros(out, patch)
    for start in range(0, count, step):
        chunk = windows[start : start + step]
        cols = buffer[: len(chunk)].copy_(chunk).view(-1, patch)
        total.addmm_(flat[start : start + step].reshape(-1, out).t(), cols)
    return total.view(out, rows, columns, channels).permute(0, 3, 1, 2).contiguous()


def _outer(gradient: Tensor) -> tuple[int, int, int]:
    count, _, height, width = gradient.shape
    return count, height, width
