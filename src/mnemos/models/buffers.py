"""What a model changes of itself while it trains."""

from __future__ import annotations

import copy

import torch
from torch import nn


def changed_buffers(module: nn.Module, shape: tuple[int, ...]) -> list[str]:
    """Names of the buffers that a forward pass in the module's present mode changes.

    The pass is made on a copy; the module stays as it is.
    """
    trial = copy.deepcopy(module)
    before = {name: buffer.clone() for name, buffer in trial.named_buffers()}
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        trial(torch.randn(2, *shape, generator=generator))
    return [name for name, buffer in trial.named_buffers() if not torch.equal(buffer, before[name])]
