"""The precision of local training: what runs in fewer bits, and which devices can.

With `bf16`, the model's passes run in bfloat16, forward and backward. Their results are converted to float32.
The parameters, the gradient vector, and everything that a method computes from them are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from mnemos.errors import ConfigError
from mnemos.methods.exchange import Net
from mnemos.objectives.softmax import wide
from mnemos.optim.local import Precision

_AMPERE = 8
"""The first generation of Nvidia's devices that has TF32."""


def check_precision(precision: Precision, devices: Iterable[torch.device]) -> None:
    """Raise a ConfigError for a precision that one of the devices doesn't have."""
    for device in devices:
        allowed = [name for name, has in _HAVE.items() if has(device)]
        if precision not in allowed:
            raise ConfigError(
                f"found {precision}, which the device {device} doesn't have; allowed: {', '.join(allowed)}",
                "local.precision",
            )


def _has_bf16(device: torch.device) -> bool:
    return torch.amp.is_autocast_available(device.type)


def _has_tf32(device: torch.device) -> bool:
    nvidia = device.type == "cuda" and torch.version.hip is None
    return nvidia and torch.cuda.get_device_capability(device)[0] >= _AMPERE


_HAVE: dict[Precision, Callable[[torch.device], bool]] = {
    "float32": lambda _: True,
    "bf16": _has_bf16,
    "tf32": _has_tf32,
}


def lowered(net: Net, precision: Precision, device: torch.device) -> Net:
    """A model whose passes run in a precision; the same object unless that is bf16."""
    return _Bfloat16(net, device.type) if precision == "bf16" else net


class _Bfloat16:
    """A model whose passes run in bfloat16, and whose results are float32."""

    def __init__(self, net: Net, kind: str) -> None:
        self._net, self._kind = net, kind

    def __call__(self, x: Tensor) -> Tensor:
        with self._autocast():
            logits = self._net(x)
        return wide(logits)

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with self._autocast():
            features, logits = self._net.features(x)
        return wide(features), wide(logits)

    def head(self, features: Tensor) -> Tensor:
        with self._autocast():
            logits = self._net.head(features)
        return wide(logits)

    def at(self, parameters: Tensor) -> Net:
        return _Bfloat16(self._net.at(parameters), self._kind)

    def _autocast(self) -> torch.autocast:
        # Without a cache of parameters in bfloat16: under `torch.func` these are values of one call.
        return torch.autocast(self._kind, torch.bfloat16, cache_enabled=False)


@contextmanager
def tf32(allowed: bool, device: torch.device) -> Iterator[None]:
    """Inside, products and convolutions on a CUDA device use TF32 if it is allowed, and else float32.

    Other devices have no TF32. PyTorch's own default is TF32 in convolutions and float32 in products.
    """
    if device.type != "cuda":
        yield
        return
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = allowed
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before
