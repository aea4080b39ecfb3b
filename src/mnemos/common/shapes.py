"""The shape of a sample, and what its entries are: numbers, or ids of tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class TokenShape(tuple[int, ...]):
    """The shape (length,) of a text: a row of token ids, each from 0 to `ids` − 1, of which 0 is padding.

    All other shapes are of numbers. It equals the plain tuple.
    """

    ids: int
    """How many ids there are: those of words, of padding and of unknown words."""

    def __new__(cls, sizes: Iterable[int], ids: int) -> TokenShape:
        """`sizes` is the plain shape."""
        shape = super().__new__(cls, sizes)
        shape.ids = ids
        return shape

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self), self.ids

    def __repr__(self) -> str:
        return f"{tuple(self)} of token ids below {self.ids}"

    __str__ = __repr__


def blank(shape: tuple[int, ...]) -> Tensor:
    """Two samples of zeros: of numbers, or of padding."""
    return torch.zeros(2, *shape, dtype=torch.int32 if isinstance(shape, TokenShape) else torch.float32)


def sample_input(shape: tuple[int, ...]) -> Tensor:
    """Two samples of random numbers, or of random tokens, always the same."""
    generator = torch.Generator().manual_seed(0)
    if isinstance(shape, TokenShape):
        return torch.randint(shape.ids, (2, *shape), generator=generator, dtype=torch.int32)
    return torch.randn(2, *shape, generator=generator)
