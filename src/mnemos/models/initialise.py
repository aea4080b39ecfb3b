"""Initial weights from an explicit generator; the global one is unchanged."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from mnemos.errors import ConfigError

_NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
_GLOBAL_DRAWS = threading.RLock()


@contextmanager
def seeded(generator: torch.Generator) -> Iterator[None]:
    """Inside, the global CPU generator is seeded from `generator`; afterwards its state is restored.

    For code that can only draw from the global generator, such as a layer's constructor. Only one thread is
    inside at a time; others wait.
    """
    seed = int(torch.randint(2**62, (), generator=generator))
    with _GLOBAL_DRAWS, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Draw every parameter of a module again, in PyTorch's default distributions.

    Convolutions and linear layers: uniform within ±1/√fan-in (Kaiming-uniform with a = √5), weight and
    bias; norms: 1, 0 and fresh running statistics; embeddings: standard normal. Other layers use their
    `reset_parameters`; a layer with parameters and without that method is an error.
    """
    for layer in module.modules():
        if isinstance(layer, _ConvNd | nn.Linear):
            _draw_affine(layer, generator)
        elif isinstance(layer, nn.Embedding):
            _draw_embedding(layer, generator)
        elif isinstance(layer, _NORMS):
            layer.reset_parameters()
        elif next(layer.parameters(recurse=False), None) is not None:
            _reset(layer, generator)


def _draw_affine(layer: _ConvNd | nn.Linear, generator: torch.Generator) -> None:
    nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
    if layer.bias is not None:
        fan_in, _ = nn.init._calculate_fan_in_and_fan_out(layer.weight)
        bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
        nn.init.uniform_(layer.bias, -bound, bound, generator=generator)


def _draw_embedding(layer: nn.Embedding, generator: torch.Generator) -> None:
    nn.init.normal_(layer.weight, generator=generator)
    if layer.padding_idx is not None:
        with torch.no_grad():
            layer.weight[layer.padding_idx] = 0


def _reset(layer: nn.Module, generator: torch.Generator) -> None:
    reset = getattr(layer, "reset_parameters", None)
    if not callable(reset):
        raise ConfigError(
            f"the weights of {type(layer).__name__} can't be drawn again: it has no reset_parameters()"
        )
    with seeded(generator):
        reset()
