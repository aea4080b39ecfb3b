"""The meaning of a model's outputs: one for each class, or one for each class and rotation of the image."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from mnemos.common.registry import Options
from mnemos.errors import ConfigError
from mnemos.methods.exchange import Batch
from mnemos.vector import Kind, Layout, Slot

_TURNS = 4


def classifier(layout: Layout) -> tuple[Slot, ...]:
    """The last linear layer's weight, and its bias if it has one; empty if there is no linear layer."""
    weights = [slot for slot in layout.parameters if slot.kind is Kind.LINEAR][-1:]
    biases = {f"{slot.name.removesuffix('weight')}bias" for slot in weights}
    return *weights, *(slot for slot in layout.parameters if slot.name in biases)


def check_classifier(layout: Layout, outputs: int, field: str) -> None:
    """Raise a ConfigError unless the model's last linear layer has as many outputs as there are classes.

    `outputs` is that number, and `field` is what the error names.
    """
    found = classifier(layout)
    if not found:
        raise ConfigError("the model has no linear layer to be its classifier", field)
    weight = found[0]
    if weight.shape[0] != outputs:
        raise ConfigError(
            f"the last linear layer, '{weight.name}', has {weight.shape[0]} outputs; the classifier must be "
            f"last, with {outputs}",
            field,
        )


class Head(Options):
    """How outputs are used: one or four for each class, and a temperature.

    With `rotations` a model has an output for each class and each quarter turn of the image (Lee et al.,
    2020, arXiv 1910.05872; as in PASS and FedSpace): a training sample of class y becomes four, with the
    labels 4y, 4y + 1, 4y + 2 and 4y + 3. Only the outputs of images as they are, 4y, are used to classify.
    """

    rotations: bool = Field(False, description="train on all quarter turns, each with a label of its own")
    temperature: float = Field(1.0, gt=0, description="divides logits before the loss, as they are read too")

    @property
    def outputs(self) -> int:
        """The number of outputs of a class."""
        return _TURNS if self.rotations else 1

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise a ConfigError for rotations of samples that aren't square images."""
        if self.rotations and (len(shape) != 3 or shape[1] != shape[2]):
            raise ConfigError(
                f"the data's samples have shape {shape}; rotations need square images",
                "method.head.rotations",
            )

    def turned(self, batch: Batch) -> Batch:
        """A batch for training: its samples as they are, then by one, two and three quarter turns.

        The samples are those of one client, with labels [B], or of several, with labels [K, B].
        """
        if not self.rotations:
            return batch
        dim = batch.labels.ndim - 1
        x = torch.cat([batch.x, *(torch.rot90(batch.x, turn, (-2, -1)) for turn in range(1, _TURNS))], dim)
        if batch.x.ndim == 4 and batch.x.is_contiguous(memory_format=torch.channels_last):
            x = x.contiguous(memory_format=torch.channels_last)
        outputs = torch.arange(_TURNS, device=batch.labels.device).unsqueeze(1)
        labels = ((_TURNS * batch.labels).unsqueeze(dim) + outputs).flatten(dim)
        mask = None if batch.mask is None else torch.cat([batch.mask] * _TURNS, dim)
        return batch._replace(x=x, labels=labels, mask=mask)

    def upright(self, batch: Batch) -> Batch:
        """The batch with the labels of images that aren't turned."""
        return batch._replace(labels=self.outputs * batch.labels) if self.rotations else batch

    def per_output(self, counts: Tensor) -> Tensor:
        """The number of samples of each output […, outputs], from that of each class […, C]."""
        return counts.repeat_interleave(self.outputs, dim=-1) if self.rotations else counts

    def read(self, logits: Tensor) -> Tensor:
        """The logits of the classes [B, C], from those of all outputs."""
        if self.rotations:
            logits = logits[:, :: self.outputs]
        return logits if self.temperature == 1 else logits / self.temperature

    def reader(self, module: nn.Module) -> nn.Module:
        """A module whose outputs are the classes' logits."""
        return module if self == Head() else _Reader(module, self)


class _Reader(nn.Module):
    """A model whose outputs are read by a head."""

    def __init__(self, module: nn.Module, head: Head) -> None:
        super().__init__()
        self.module, self._head = module, head

    def forward(self, x: Tensor) -> Tensor:
        return self._head.read(self.module(x))
