"""Results that are kept for as long as the tensors that they depend on live and stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary

_R = TypeVar("_R")


def kept(function: Callable[..., _R]) -> Callable[..., _R]:
    """A function of tensors that isn't computed again for the same tensors, on a device.

    It is for what is the same in all steps of a client's round, such as the logarithms of its labels' shares:
    on a device each small operation costs as much as a large one. On the CPU small ones cost no more than
    looking up a result, and `vmap` makes other tensors of the same values in every step; both compute anew.

    The last result for each first tensor is kept. A tensor that was changed in place is another one.
    """
    results = WeakTensorKeyDictionary()

    @wraps(function)
    def of(*tensors: Tensor) -> _R:
        first, *others = tensors
        if first.device.type == "cpu" or torch._C._are_functorch_transforms_active():
            return function(*tensors)
        found = results.get(first)  # type: ignore[no-untyped-call]
        versions = [tensor._version for tensor in tensors]
        if found is None or found[0] != versions or not _are(found[1], others):
            # Not the tensors themselves: their memory would never be given back.
            results[first] = found = versions, list(map(TensorWeakRef, others)), function(*tensors)
        result: _R = found[2]
        return result

    return of


def _are(references: list[Any], tensors: list[Tensor]) -> bool:
    """Whether references are to these very tensors."""
    return len(references) == len(tensors) and all(
        reference() is tensor for reference, tensor in zip(references, tensors, strict=True)
    )
