"""Devices: which there are, how much memory they have, and how tensors get there in few pieces."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import Tensor

from mnemos.errors import ConfigError, did_you_mean

_T = TypeVar("_T")

CPU = torch.device("cpu")
AUTO = "auto"
KINDS = ("cuda", "xpu", "mps")
"""Kinds of devices that `auto` looks for, in this order; ROCm's are called cuda, too."""
_CALLED = {
    **dict.fromkeys(("nvidia", "geforce", "amd", "rocm", "hip", "radeon"), "cuda"),
    "intel": "xpu",
    **dict.fromkeys(("apple", "metal"), "mps"),
}
"""What people call devices, and what PyTorch calls them."""
_ALIGNED = 16
"""Tensors begin at multiples of this many bytes in a parcel, as their types ask for."""


def find_devices(names: str | Sequence[str], field: str = "engine.device") -> tuple[torch.device, ...]:
    """The devices of these names; `auto` is the first accelerator that there is, or else the CPU.

    Raises a ConfigError that names the devices that there are, if one of them isn't there.
    """
    several = (names,) if isinstance(names, str) else tuple(names)
    if not several:
        raise ConfigError("found no device; allowed: auto, or the names of devices", field)
    found = tuple(_find(name, field) for name in several)
    if len(set(found)) < len(found):
        raise ConfigError(f"found {', '.join(several)}, in which a device is there twice", field)
    if len(found) > 1 and CPU in found:
        raise ConfigError(f"found {', '.join(several)}; the CPU can't be one of several devices", field)
    return found


def device_names() -> list[str]:
    """The names of all devices of this machine, the CPU first."""
    kinds = {*KINDS, torch._C._get_privateuse1_backend_name()}
    return ["cpu", *(f"{kind}:{index}" for kind in sorted(kinds) for index in range(_count(kind)))]


def describe(device: torch.device) -> str:
    """What a device calls itself, such as `NVIDIA A100-SXM4-40GB`; its own name if it doesn't say."""
    module = _module(device.type)
    name = getattr(module, "get_device_name", None)
    return str(name(device)) if callable(name) else device.type


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be had on a device; None if the device doesn't say, as the CPU."""
    module = _module(device.type)
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory())
    info = getattr(module, "mem_get_info", None)
    if not callable(info):
        return None
    # What PyTorch keeps for later can be had as well, and the driver doesn't know it.
    reserved, allocated = (
        getattr(module, name, lambda _device: 0)(device) for name in ("memory_reserved", "memory_allocated")
    )
    return int(info(device)[0] + max(0, reserved - allocated))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a device has no memory left; Apple's have no class of their own for it."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "MPS backend out of memory" in str(error)


def out_of_memory(error: BaseException) -> str:
    """`cuda:0 has no memory left (Tried to allocate 2.00 GiB)`, of an error that says so in its own way.

    The name is made of what the message says, because the error has no device.
    """
    text = " ".join(str(error).split())
    kind, index = (
        re.match(r"(\w+)(?: backend)? out of memory", text),
        re.search(r"(?:GPU|Device) (\d+)", text),
    )
    known = "a device" if kind is None else _CALLED.get(kind[1].lower(), kind[1].lower())
    name = f"{known}:{index[1]}" if kind and index else known
    asked = re.search(r"Tried to allocate .*?(?=\. |\.?$)", text)
    return f"{name} has no memory left ({asked[0] if asked else text})"


def release_memory(device: torch.device) -> None:
    """Give memory that is kept for later back to a device, as after an error that it has none left."""
    module = _module(device.type)
    empty = getattr(module, "empty_cache", None)
    if callable(empty):
        gc.collect()
        empty()


def synchronize(device: torch.device) -> None:
    """Wait until a device has done what it was asked for; the CPU has always."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def send(values: _T, device: torch.device) -> _T:
    """Values with their tensors on a device, sent in one piece; what is there already stays as it is.

    `values` are tensors, in tuples, lists and dictionaries of any depth, beside anything else. A transfer
    costs as much as many kernels, however small it is: so the tensors are laid end to end in one buffer of
    bytes, and are views of it at the other end. Apple's devices have no double precision: numbers of that
    kind become single there.
    """
    found = {id(tensor): tensor for tensor in _tensors(values) if tensor.device != device}
    if not found:
        return values
    host = {key: tensor for key, tensor in found.items() if tensor.device == CPU}
    ready = [tensor if knows_double(device) else _single(tensor) for tensor in host.values()]
    moved = dict(zip(host, _send_together(ready, device), strict=True))
    # From one accelerator to another there is no host to lay them together.
    moved |= {key: tensor.to(device) for key, tensor in found.items() if key not in host}
    sent: _T = _with_tensors(values, lambda tensor: moved.get(id(tensor), tensor))
    return sent


def _send_together(tensors: list[Tensor], device: torch.device) -> list[Tensor]:
    """Tensors of the host on a device, sent as one tensor of bytes."""
    if len(tensors) < 2:
        return [tensor.to(device) for tensor in tensors]
    by_type: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        by_type.setdefault(tensor.dtype, []).append(tensor)
    pieces = [
        torch.cat([tensor.reshape(-1) for tensor in some]).view(torch.uint8) for some in by_type.values()
    ]
    views = {
        dtype: iter(torch.split(sent.view(dtype), [tensor.numel() for tensor in by_type[dtype]]))
        for dtype, sent in zip(by_type, _send_bytes(pieces, device), strict=True)
    }
    return [next(views[tensor.dtype]).view(tensor.shape) for tensor in tensors]


def _send_bytes(pieces: list[Tensor], device: torch.device) -> list[Tensor]:
    """Tensors of bytes on a device, as parts of one tensor."""
    padded = [-(-len(piece) // _ALIGNED) * _ALIGNED for piece in pieces]
    parcel = torch.empty(sum(padded), dtype=torch.uint8, pin_memory=device.type == "cuda")
    for slot, piece in zip(torch.split(parcel, padded), pieces, strict=True):
        slot[: len(piece)] = piece
    # Only pinned memory is kept until a copy from it is over; other memory is gone when this returns.
    slots = torch.split(parcel.to(device, non_blocking=parcel.is_pinned()), padded)
    return [slot[: len(piece)] for slot, piece in zip(slots, pieces, strict=True)]


def _tensors(values: Any) -> Iterator[Tensor]:
    """All tensors in tuples, lists and dictionaries, in their order."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, dict):
        for value in values.values():
            yield from _tensors(value)
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _tensors(value)


def _with_tensors(values: Any, of: Callable[[Tensor], Tensor]) -> Any:
    """The same values with a function of each tensor in its place."""
    if isinstance(values, Tensor):
        return of(values)
    if isinstance(values, dict):
        return {name: _with_tensors(value, of) for name, value in values.items()}
    if isinstance(values, list | tuple):
        parts = [_with_tensors(value, of) for value in values]
        named = isinstance(values, tuple) and hasattr(values, "_fields")
        return type(values)(*parts) if named else type(values)(parts)
    return values


def bytes_in(values: Any) -> int:
    """How many bytes the tensors in tuples, lists and dictionaries have."""
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(values))


def knows_double(device: torch.device) -> bool:
    """Whether a device computes in double precision; Apple's don't."""
    return device.type != "mps"


def double(tensor: Tensor) -> Tensor:
    """A tensor in double precision, or in single precision on a device that has no other."""
    return tensor.double() if knows_double(tensor.device) else tensor.float()


def _single(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype == torch.float64 else tensor


def _find(name: str, field: str) -> torch.device:
    if name == AUTO:
        return next((torch.device(kind, 0) for kind in KINDS if _count(kind)), CPU)
    there = device_names()
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is not None and device.type == "cpu":
        return CPU
    if device is not None and (device.index or 0) < _count(device.type):
        return torch.device(device.type, device.index or 0)
    hint = _hint(name, there) if device is None else ""
    without = device is not None and device.type in KINDS and not _is_built_for(device.type)
    missing = f"'{name}', which this PyTorch was built without" if without else f"'{name}'"
    raise ConfigError(f"there is no device {missing}; {hint}there is {', '.join(there)}", field)


def _is_built_for(kind: str) -> bool:
    """Whether PyTorch was built for a kind of devices, whether there is one or not."""
    if kind == "mps":
        return torch.backends.mps.is_built()
    builds = ("cuda", "hip") if kind == "cuda" else (kind,)
    return any(getattr(torch.version, build, None) for build in builds)


def _hint(name: str, there: Sequence[str]) -> str:
    """`did you mean 'cuda:1'? ` for `gpu:1`, and the like for other words that PyTorch doesn't know."""
    kind, colon, index = name.lower().partition(":")
    found = {"gpu": next(filter(_count, KINDS), KINDS[0]), **_CALLED}.get(kind)
    return f"did you mean '{found}{colon}{index}'? " if found else did_you_mean(name, [AUTO, *KINDS, *there])


def _module(kind: str) -> ModuleType | None:
    found: ModuleType | None = getattr(torch, kind, None)
    return found


def _count(kind: str) -> int:
    """How many devices of a kind there are."""
    module = _module(kind)
    if module is None or not hasattr(module, "is_available") or not module.is_available():
        return 0
    return int(module.device_count())
