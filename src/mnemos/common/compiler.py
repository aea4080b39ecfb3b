"""Keeps PyTorch's compiler out of runs that don't use it: importing it takes as long as importing PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch

_MODULE = "_dynamo"
_ABSENT: Any = SimpleNamespace(compiled_autograd=SimpleNamespace(_disable=nullcontext))
"""Stands in for a compiler that isn't there: of all its parts, gradients ask for this one."""


@contextmanager
def without_compiler() -> Iterator[None]:
    """Inside, `torch.func.grad` doesn't import PyTorch's compiler.

    It would import it only to switch compiled gradients off, and there are none while the compiler isn't
    imported. Code inside can still import the compiler: the import replaces the stand-in.
    """
    if f"torch.{_MODULE}" in sys.modules:
        yield
        return
    names = vars(torch)
    names[_MODULE] = _ABSENT
    try:
        yield
    finally:
        if names.get(_MODULE) is _ABSENT:  # not imported meanwhile, nor removed by another thread
            del names[_MODULE]
