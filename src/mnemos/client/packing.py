"""The byte form of messages and files: safetensors with a JSON header. Nothing is ever unpickled."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.numpy import save as save_arrays
from safetensors.torch import load, save
from torch import Tensor

from mnemos.common.plain import parse_json, whole
from mnemos.errors import DataError
from mnemos.methods.exchange import State

_T = TypeVar("_T")

_PLAIN = frozenset((torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool))
"""Types that NumPy has, too."""


def pack(tensors: Mapping[str, Tensor], states: Mapping[str, State], header: Mapping[str, Any]) -> bytes:
    """Tensors, groups of named tensors and a JSON header as one safetensors buffer."""
    flat = dict(tensors)
    for group, state in states.items():
        flat.update({f"{group}/{name}": tensor for name, tensor in state.items()})
    about = {"mnemos": json.dumps(header, sort_keys=True)}
    if all(tensor.dtype in _PLAIN for tensor in flat.values()):  # the same bytes in a third of the time
        return save_arrays(
            {name: value.detach().cpu().contiguous().numpy() for name, value in flat.items()}, about
        )
    # Rows of a cohort's matrix share memory; safetensors wants each tensor on its own.
    flat = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in flat.items()
    }
    return save(flat, about)


def unpack(data: bytes, *groups: str) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, State]]:
    """(header, tensors, groups) of a buffer made by `pack`; the groups named are there even if empty."""
    try:
        flat = load(data)
        length = int.from_bytes(data[:8], "little")
        header = parse_json(parse_json(data[8 : 8 + length])["__metadata__"]["mnemos"])
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"message: can't be read ({reason(error)})") from None
    if not isinstance(header, dict):
        raise DataError(f"message: can't be read (its header is a {type(header).__name__})")
    states: dict[str, State] = {group: {} for group in groups}
    tensors: dict[str, Tensor] = {}
    for name, tensor in flat.items():
        group, slash, rest = name.partition("/")
        if slash:
            states.setdefault(group, {})[rest] = tensor
        else:
            tensors[name] = tensor
    return header, tensors, states


def read(header: Mapping[str, Any], name: str, parse: Callable[[Any], _T]) -> _T:
    """A value of a header, parsed; an error names the value."""
    try:
        return parse(header[name])
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def vector(tensors: Mapping[str, Tensor], name: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """The tensor of a name, which must be a vector of this type."""
    found = tensors[name]
    if found.dtype != dtype or found.ndim != 1:
        raise ValueError(
            f"{name}: found {found.dtype} {list(found.shape)}, and a vector of {dtype} is expected"
        )
    return found


def whole_or_none(value: Any) -> int | None:
    """A whole number from 0 on, or nothing."""
    return None if value is None else whole(value)


def reason(error: Exception) -> str:
    """Why a message can't be read, in a few words."""
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)
