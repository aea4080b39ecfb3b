"""Keeps PyTorch's compiler out of runs that don't use it: importing it takes as long as importing PyTorch."""

from __future__ import annotations

import importlib
import sys
from contextlib import nullcontext
from typing import Any

import torch

_MODULE = "torch._dynamo"


def defer_compiler() -> None:
    """Let `torch.func.grad` work without importing PyTorch's compiler.

    It imports the compiler to switch compiled gradients off, and as long as the compiler isn't imported there
    are none. `torch._dynamo` imports itself when something asks `torch` for it; this has it do so when
    something asks for any part of it but that switch.
    """
    if _MODULE not in sys.modules and "_dynamo" not in vars(torch):
        torch._dynamo = _NotYet()  # type: ignore[assignment]


class _NotYet:
    """The compiler, as long as it isn't imported; the import itself replaces it by the module."""

    def __getattr__(self, name: str) -> Any:
        if name == "compiled_autograd" and _MODULE not in sys.modules:
            return _Gradients()
        return getattr(_imported(), name)


class _Gradients:
    """The compiler's part for gradients, likewise."""

    _disable = nullcontext

    def __getattr__(self, name: str) -> Any:
        return getattr(_imported().compiled_autograd, name)


def _imported() -> Any:
    if isinstance(vars(torch).get("_dynamo"), _NotYet):
        del torch._dynamo  # PyTorch's own way of importing it comes next, as if nothing had been here
    return importlib.import_module(_MODULE)
