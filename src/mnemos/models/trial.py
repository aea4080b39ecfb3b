"""Forward passes that leave a model unchanged.

A forward pass can change a model: batch-norm updates its statistics, a user's own layer may count its calls.
Code that only inspects a model therefore runs a copy of it.
"""

from __future__ import annotations

import copy
import random
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from mnemos.errors import ConfigError


@contextmanager
def trial(module: nn.Module, *, training: bool) -> Iterator[nn.Module]:
    """A copy of a module in training or evaluation mode, to be run without gradients.

    Afterwards the module and the global random generators are unchanged, bit for bit.
    """
    try:
        twin = copied(module)
    except Exception as error:
        raise ConfigError(
            "it can't be copied, and models are tried out on a copy before training "
            f"({type(error).__name__}: {error})"
        ) from error
    torch_state, numpy_state, python_state = (
        torch.get_rng_state(),
        np.random.get_state(),  # noqa: NPY002 - a user's module may draw from it
        random.getstate(),
    )
    try:
        with torch.no_grad():
            yield twin.train(training)
    finally:
        torch.set_rng_state(torch_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)


def copied(module: nn.Module) -> nn.Module:
    """A copy that shares nothing with the module, as `deepcopy` makes it, in half the time.

    Every layer has a dozen empty collections for its hooks, which `deepcopy` takes apart one by one: it is
    given a new one for each.
    """
    empty = {
        id(value): type(value)()
        for layer in module.modules()
        for value in vars(layer).values()
        if type(value) in (OrderedDict, dict, set, list) and not value
    }
    return copy.deepcopy(module, empty)


def global_states() -> tuple[object, ...]:
    """The states of the global generators of PyTorch, NumPy and Python, as comparable values."""
    kind, key, *rest = np.random.get_state()  # noqa: NPY002
    return torch.get_rng_state().numpy().tobytes(), kind, np.asarray(key).tobytes(), *rest, random.getstate()


def buffer_bytes(module: nn.Module) -> dict[str, bytes]:
    """A module's buffers, bit for bit."""
    return {
        name: buffer.detach().reshape(-1).view(torch.uint8).numpy().tobytes()  # NumPy has no bfloat16
        for name, buffer in module.named_buffers()
    }
