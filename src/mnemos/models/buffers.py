"""The buffers that a model changes in a forward pass."""

from __future__ import annotations

from torch import nn

from mnemos.common.shapes import sample_input
from mnemos.models.trial import buffer_bytes, trial


def changed_buffers(module: nn.Module, shape: tuple[int, ...], *, training: bool) -> list[str]:
    """Names of the buffers that a forward pass in this mode changes, found on a copy of the module."""
    with trial(module, training=training) as twin:
        before = buffer_bytes(twin)
        twin(sample_input(shape))
        return [name for name, after in buffer_bytes(twin).items() if after != before.get(name)]
