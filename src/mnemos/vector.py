"""A model is a vector with a layout.

All parameters of a module live in one contiguous float32 vector and all buffers in a second one; a
`Layout` says which slice is which tensor. Broadcasting a model is then one copy, an optimiser step or an
aggregate one multiply-add, a cohort a matrix and a message a buffer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from mnemos.common.devices import double
from mnemos.common.files import write_atomically
from mnemos.errors import ConfigError, DataError

_AT_ONCE = 1 << 22
"""How many numbers are squared and summed at a time, so that a large cohort needs no second copy."""


class Kind(StrEnum):
    """The role of a tensor in its model; weightings and measures treat the kinds differently."""

    CONV = "conv"
    LINEAR = "linear"
    NORM = "norm"
    BIAS = "bias"
    EMBEDDING = "embedding"
    OTHER = "other"
    BUFFER = "buffer"


@dataclass(frozen=True)
class Slot:
    """The slice of a vector that holds one tensor."""

    name: str
    shape: tuple[int, ...]
    start: int
    kind: Kind
    dtype: torch.dtype = torch.float32
    """The tensor's own type in the module; in the vector it is always float32."""

    @property
    def size(self) -> int:
        """How many numbers the tensor has."""
        return math.prod(self.shape)

    @property
    def stop(self) -> int:
        """The end of the slice."""
        return self.start + self.size


@dataclass(frozen=True)
class Layout:
    """Which slice of the parameter vector, and of the buffer vector, is which tensor."""

    parameters: tuple[Slot, ...]
    buffers: tuple[Slot, ...]

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        """The layout of a module, in the order of `named_parameters` and `named_buffers`.

        It holds what training changes: parameters that require a gradient, and statistics (floating buffers
        and batch-norm's counters). Everything else is the same for all clients and stays in the module.
        """
        kinds = _kinds(module)
        named = [(name, tensor) for name, tensor in module.named_parameters() if tensor.requires_grad]
        for name, tensor in named:
            if tensor.dtype != torch.float32:
                raise ConfigError(f"parameter '{name}' is {tensor.dtype}; parameters must be float32")
        persistent = set(module.state_dict(keep_vars=True))
        buffers = [(name, tensor) for name, tensor in module.named_buffers() if name in persistent]
        return cls(
            parameters=_slots(named, kinds),
            buffers=_slots([(name, b) for name, b in buffers if _is_statistic(name, b)], {}),
        )

    @cached_property
    def size(self) -> int:
        """Length of the parameter vector."""
        return sum(slot.size for slot in self.parameters)

    @cached_property
    def buffer_size(self) -> int:
        """Length of the buffer vector."""
        return sum(slot.size for slot in self.buffers)

    def under(self, prefix: str) -> Layout:
        """The same layout with `prefix.` before every name, as in a module that contains this one."""
        if not prefix:
            return self
        parameters, buffers = (
            tuple(replace(slot, name=f"{prefix}.{slot.name}") for slot in slots)
            for slots in (self.parameters, self.buffers)
        )
        return Layout(parameters, buffers)

    def zeros(self) -> Tensor:
        """A parameter vector of zeros."""
        return torch.zeros(self.size)

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """The parameters by name, as views of a vector (differentiable: its gradient is one vector)."""
        return _views(self.parameters, vector)

    def buffer_views(self, vector: Tensor) -> dict[str, Tensor]:
        """The buffers by name, as float32 views of a buffer vector."""
        return _views(self.buffers, vector)

    def expand(self, values: Tensor) -> Tensor:
        """A parameter vector from one value per tensor, repeated over the tensor's slice."""
        if values.device not in self._sizes:
            sizes = [slot.size for slot in self.parameters]
            self._sizes[values.device] = torch.tensor(sizes, device=values.device)
        return torch.repeat_interleave(values, self._sizes[values.device], output_size=self.size)

    @cached_property
    def _sizes(self) -> dict[torch.device, Tensor]:
        """How many numbers each tensor has, on the devices where that was needed."""
        return {}

    def state_dict(self, parameters: Tensor, buffers: Tensor) -> dict[str, Tensor]:
        """Both vectors as an ordinary state dictionary, each tensor a copy in its own type."""
        views = {**self.views(parameters), **self.buffer_views(buffers)}
        return {
            slot.name: views[slot.name].detach().to(slot.dtype, copy=True)
            for slot in (*self.parameters, *self.buffers)
        }

    def gather(self, state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Both vectors from a state dictionary that has every tensor of this layout."""
        parameters, buffers = _gather(self.parameters, state), _gather(self.buffers, state)
        return parameters, buffers if self.buffers else buffers.to(parameters.device)


class Bound:
    """A module whose parameters, gradients and buffers are views of three vectors."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.layout = Layout.of(module)
        self.parameters, self.buffers = self.layout.gather(module.state_dict())
        self.gradients = torch.zeros_like(self.parameters)
        self._bound: list[nn.Parameter] = []
        gradients = self.layout.views(self.gradients)
        for name, view in self.layout.views(self.parameters).items():
            parameter = module.get_parameter(name)
            parameter.data = view
            parameter.grad = gradients[name]
            self._bound.append(parameter)
        for name, view in self.layout.buffer_views(self.buffers).items():
            owner, _, leaf = name.rpartition(".")
            # Counters become floats (exact below 2²⁴); `state_dict` gives them their type back.
            # `.data`, because views share one version counter: when one batch-norm updates its statistics,
            # autograd would report the statistics of all others as modified in place.
            module.get_submodule(owner)._buffers[leaf] = view.data

    def backward(self, losses: Tensor, weights: Tensor | None = None) -> None:
        """Put the gradient of a loss into `gradients`, or that of the sum of losses times `weights`."""
        if losses.device.type == "cpu":
            self.gradients.zero_()
            losses.backward(weights)  # type: ignore[no-untyped-call]
            return
        # One kernel that gathers them, where adding each to its place would be one a tensor.
        found = torch.autograd.grad(losses, self._bound, weights, allow_unused=True, materialize_grads=True)
        torch.cat([gradient.reshape(-1) for gradient in found], out=self.gradients)

    def load(self, parameters: Tensor, buffers: Tensor) -> None:
        """Copy a model into the bound module."""
        self.parameters.copy_(parameters)
        self.buffers.copy_(buffers)


def save_model(
    path: Path,
    module: nn.Module,
    parameters: Tensor,
    buffers: Tensor,
    header: Mapping[str, str] | None = None,
) -> None:
    """Write a module with these vectors as a safetensors file, one entry per tensor.

    `header` is text that the file's header has beside the tensors' names and shapes.
    """
    layout = Layout.of(module)
    constants = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
    trained = layout.state_dict(parameters.cpu(), buffers.cpu())
    write_atomically(path, save({**constants, **trained}, None if header is None else dict(header)))


def load_model(path: Path, module: nn.Module) -> None:
    """Put the tensors of a safetensors file into a module that has the same ones."""
    try:
        state = load_file(path)
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path}: can't be read as safetensors ({error})") from None
    expected = module.state_dict()
    for name, tensor in expected.items():
        found = state.get(name)
        if found is None:
            raise DataError(f"{path}: tensor '{name}' is missing")
        if found.shape != tensor.shape:
            raise DataError(
                f"{path}: tensor '{name}' is {tuple(found.shape)}, expected {tuple(tensor.shape)}"
            )
    module.load_state_dict({name: state[name] for name in expected})


def total(vector: Tensor) -> float:
    """The sum of a vector in its precision, the same on any number of threads (unlike torch's on a CPU)."""
    return float(vector.sum() if vector.device.type != "cpu" else vector.detach().numpy().sum())


def square_sum(vector: Tensor) -> float:
    """‖v‖² in double precision, the same on any number of threads (unlike torch's sum on a CPU)."""
    if vector.device.type != "cpu":
        return total(double(vector.detach()).square())
    return float(np.square(vector.detach().double().numpy()).sum())


def square_sums(rows: Tensor) -> Tensor:
    """‖·‖² of each row of [K, P] on the CPU, equal to `square_sum` of the row.

    Few numbers are summed in one call.
    """
    if rows.device.type != "cpu":
        chunks = torch.split(rows.detach(), max(1, _AT_ONCE // rows.shape[1]))
        return torch.cat([double(chunk).square().sum(1) for chunk in chunks]).cpu()
    if rows.numel() > _AT_ONCE:
        return torch.tensor([square_sum(row) for row in rows], dtype=torch.float64)
    return torch.from_numpy(np.square(rows.detach().double().numpy()).sum(1))


def square_distances(rows: Tensor) -> Tensor:
    """‖a − b‖² for all pairs of rows of [K, P]: a symmetric matrix [K, K] on the CPU, in double precision."""
    count = len(rows)
    distances = torch.zeros(count, count, dtype=torch.float64)
    step = count if rows.numel() <= _AT_ONCE else 1
    for row in range(1, count):
        for others in torch.split(torch.arange(row), step):
            distances[row, others] = distances[others, row] = square_sums(rows[others] - rows[row])
    return distances


def _is_statistic(name: str, buffer: Tensor) -> bool:
    # Other integers (indices, masks) are constants, and layers expect them as integers.
    return buffer.is_floating_point() or name.endswith("num_batches_tracked")


def _slots(named: Iterable[tuple[str, Tensor]], kinds: Mapping[str, Kind]) -> tuple[Slot, ...]:
    slots, start = [], 0
    for name, tensor in named:
        slot = Slot(name, tuple(tensor.shape), start, kinds.get(name, Kind.BUFFER), tensor.dtype)
        slots.append(slot)
        start = slot.stop
    return tuple(slots)


def _views(slots: tuple[Slot, ...], vector: Tensor) -> dict[str, Tensor]:
    # One split, whose backward is one concatenation, instead of one padded slice per tensor.
    pieces = torch.split(vector, [slot.size for slot in slots])
    return {slot.name: piece.view(slot.shape) for slot, piece in zip(slots, pieces, strict=True)}


def _gather(slots: tuple[Slot, ...], state: Mapping[str, Tensor]) -> Tensor:
    if not slots:
        return torch.zeros(0)
    return torch.cat([state[slot.name].detach().reshape(-1).to(torch.float32) for slot in slots])


def _kinds(module: nn.Module) -> dict[str, Kind]:
    return {
        f"{prefix}.{name}" if prefix else name: _kind(owner, name, tensor)
        for prefix, owner in module.named_modules()
        for name, tensor in owner.named_parameters(recurse=False)
    }


def _kind(owner: Any, name: str, tensor: Tensor) -> Kind:
    if isinstance(owner, _NormBase | nn.GroupNorm | nn.LayerNorm | nn.RMSNorm):
        return Kind.NORM
    if "bias" in name:
        return Kind.BIAS
    if isinstance(owner, _ConvNd):
        return Kind.CONV
    if isinstance(owner, nn.Embedding | nn.EmbeddingBag):
        return Kind.EMBEDDING
    return Kind.LINEAR if tensor.ndim == 2 else Kind.OTHER
