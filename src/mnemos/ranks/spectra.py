"""The singular values of all layers of many models at once.

A convolution W [C_out, C_in, k, k] is a matrix in two ways: its mode-3 unfolding C_in × (C_out k²), the side
of its input, and its mode-4 unfolding C_out × (C_in k²), the side of its output. Singular values are the
square roots of the eigenvalues of the smaller Gram matrix, in double precision: several times as fast as a
singular value decomposition in single precision, and more accurate, as products of two single-precision
numbers are exact in double precision. (Values below 1e-8 of the greatest are rounding errors; with a
decomposition in single precision, those below 1e-7.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from mnemos.common.cores import cores
from mnemos.common.devices import CPU, knows_double
from mnemos.common.pools import compute_pool
from mnemos.ranks.evbmf import evbmf
from mnemos.vector import Kind, Layout, Slot

Side = Literal["in", "out"]
SIDES: tuple[Side, Side] = ("in", "out")
Quantity = Callable[[Tensor, int], Tensor]
"""A number of a spectrum, from its values [..., L] and the rows of its unfolding."""
_Shape = tuple[int, int]

_CHUNK = 8_000_000
"""The most numbers in the matrices of one thread (64 MB), unless a single matrix has more."""


def ranked(layout: Layout, linear: bool = False) -> tuple[Slot, ...]:
    """The tensors that have spectra, in the layout's order: convolutions, and with `linear` linear layers."""
    kinds = {Kind.CONV, Kind.LINEAR} if linear else {Kind.CONV}
    return tuple(slot for slot in layout.parameters if slot.kind in kinds and len(slot.shape) > 1)


class Spectra:
    """The spectra of the ranked layers of K models [K, P] of one layout.

    A layer with an entry that isn't finite has a spectrum of zeros.
    """

    def __init__(self, models: Tensor, layout: Layout, linear: bool = False) -> None:
        self.layers = ranked(layout, linear)
        self._models = models
        self._by_shape: dict[_Shape, list[tuple[Slot, Side]]] = defaultdict(list)
        for slot in self.layers:
            for side in _distinct(slot):
                rows, columns = _unfolded(slot, side)
                self._by_shape[min(rows, columns), max(rows, columns)].append((slot, side))

    def of(self, quantity: Quantity, noisy: bool = False) -> Tensor:
        """A quantity of every layer's sides [K, layers, 2], in double precision; noisy: before EVBMF."""
        if not self.layers:
            return torch.zeros(len(self._models), 0, len(SIDES), dtype=torch.float64)
        spectra = self._noisy if noisy else self._kept
        found = {
            (slot.name, side): values
            for shape, members in self._by_shape.items()
            for (slot, side), values in zip(members, spectra[shape], strict=True)
        }
        columns = [
            quantity(found.get((slot.name, side), found[slot.name, "out"]), _unfolded(slot, side)[0])
            for slot in self.layers
            for side in SIDES
        ]
        return torch.stack(columns, -1).view(-1, len(self.layers), len(SIDES))

    @cached_property
    def _noisy(self) -> dict[_Shape, Tensor]:
        """The singular values of all layers and models of a shape [layers, K, L], descending."""
        jobs = {
            shape: [
                (_singular_values, chunk, slot, side)
                for slot, side in members
                for chunk in torch.split(self._models, max(1, _CHUNK // (shape[0] * shape[1])))
            ]
            for shape, members in self._by_shape.items()
        }
        done = iter(_on_host(_on_threads([job for group in jobs.values() for job in group])))
        return {
            shape: torch.cat([next(done) for _ in group]).view(len(self._by_shape[shape]), -1, shape[0])
            for shape, group in jobs.items()
        }

    @cached_property
    def _kept(self) -> dict[_Shape, Tensor]:
        """The singular values after EVBMF."""
        done = _on_threads([(evbmf, values, shape[1]) for shape, values in self._noisy.items()])
        return {shape: kept for shape, (kept, _) in zip(self._noisy, done, strict=True)}


def _distinct(slot: Slot) -> tuple[Side, ...]:
    """The sides with spectra of their own: without a kernel, one side is the other's transpose."""
    return SIDES if slot.size > slot.shape[0] * slot.shape[1] else SIDES[1:]


def _unfolded(slot: Slot, side: Side) -> _Shape:
    """Rows and columns of an unfolding."""
    rows = slot.shape[1] if side == "in" else slot.shape[0]
    return rows, slot.size // rows


def _singular_values(models: Tensor, slot: Slot, side: Side) -> Tensor:
    """The singular values [K, L] of a layer's unfolding, descending."""
    # A model that is being trained may be on a device without double precision.
    models = models if knows_double(models.device) else models.cpu()
    tensors = models[:, slot.start : slot.stop].view(-1, *slot.shape)
    matrices = (tensors.transpose(1, 2) if side == "in" else tensors).flatten(2).double()
    finite = matrices.isfinite().flatten(1).all(1)
    matrices = torch.where(finite[:, None, None], matrices, 0.0)
    if matrices.shape[1] > matrices.shape[2]:
        matrices = matrices.mT
    eigenvalues: Tensor = torch.linalg.eigvalsh(matrices @ matrices.mT)
    return eigenvalues.flip(-1).clamp_min(0).sqrt()


def _on_host(spectra: list[Tensor]) -> list[Tensor]:
    """Singular values on the CPU, fetched in one piece.

    They are few, and what is made of them takes decisions.
    """
    if all(values.device == CPU for values in spectra):
        return spectra
    found = torch.cat([values.reshape(-1) for values in spectra]).cpu()
    pieces = torch.split(found, [values.numel() for values in spectra])
    return [piece.view(values.shape) for piece, values in zip(pieces, spectra, strict=True)]


def _on_threads(jobs: list[tuple[Any, ...]]) -> list[Any]:
    """The results of jobs (function, arguments …), on one intra-op thread each: the same on any machine."""
    with compute_pool(cores(), "ranks") as pool:
        return [job.result() for job in [pool.submit(*job) for job in jobs]]
