"""The order of an image's numbers in memory."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.conv import _ConvNd


def channels_last_is_safe(module: nn.Module) -> bool:
    """Whether a module's convolutions work correctly on channels-last images.

    PyTorch 2.13's CPU library (oneDNN) writes outside its memory for 1×1 convolutions with a stride and
    fewer input channels than a vector register holds, and may crash. Such a model gets the default order.
    """
    return not any(
        isinstance(layer, _ConvNd)
        and max(layer.kernel_size) == 1
        and max(layer.stride) > 1
        and layer.in_channels // layer.groups < 16
        for layer in module.modules()
    )
