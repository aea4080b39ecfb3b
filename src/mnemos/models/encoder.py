"""Encoders: the tensors of a trained model without its head, in a file or as the start of another model."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from mnemos.common.files import write_atomically
from mnemos.common.plain import parse_json
from mnemos.common.shapes import blank
from mnemos.errors import ConfigError, DataError
from mnemos.models.trial import trial
from mnemos.vector import Layout

_ABOUT = "mnemos.encoder"
"""The entry of a file's header that describes the encoder."""


@dataclass(frozen=True)
class Encoder:
    """The tensors of an encoder by their names in a model, and facts about its training."""

    tensors: dict[str, Tensor]
    about: dict[str, Any]
    """The model, its training data and its accuracy; empty for a file that `save_encoder` didn't write."""
    source: str = "the encoder"
    """The name of the encoder in errors."""

    @cached_property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that are equal for equal tensors."""
        return digest(self.tensors)

    @property
    def accuracy(self) -> float | None:
        """The accuracy on images that it wasn't trained on, if it is known."""
        found = self.about.get("accuracy")
        return found if isinstance(found, float) else None

    @property
    def doubt(self) -> str:
        """A warning if its accuracy is hardly better than chance; empty otherwise."""
        match self.about:
            case {"accuracy": float(accuracy), "options": {"labels": "single", "classes": int(classes)}}:
                if accuracy < 2 / classes:
                    return (
                        f"the encoder tells {accuracy:.1%} of images that it hasn't seen, where guessing has "
                        f"{1 / classes:.1%}: it has learned next to nothing"
                    )
        return ""


def digest(tensors: dict[str, Tensor]) -> str:
    """Sixteen hexadecimal digits of tensors' names, types, shapes and values."""
    found = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def head_of(module: nn.Module, shape: tuple[int, ...]) -> str:
    """The name of a model's head: `head`, otherwise the last linear layer that a forward pass uses."""
    if isinstance(getattr(module, "head", None), nn.Module):
        return "head"
    seen: list[str] = []
    with trial(module, training=False) as twin:
        for name, layer in twin.named_modules():
            if isinstance(layer, nn.Linear):
                layer.register_forward_pre_hook(lambda _layer, _inputs, name=name: seen.append(name))
        twin(blank(shape))
    if not seen:
        raise ConfigError("the model has neither a head nor a linear layer that could be one")
    return seen[-1]


def body_of(tensors: dict[str, Tensor], head: str) -> dict[str, Tensor]:
    """All tensors but those of the head."""
    body = {name: tensor for name, tensor in tensors.items() if not name.startswith(f"{head}.")}
    if not body:
        raise ConfigError("the model is nothing but a head, so there is no encoder that it could start from")
    return body


def place(encoder: Encoder, module: nn.Module, shape: tuple[int, ...]) -> None:
    """Load the encoder's tensors, including batch-norm's statistics, into a model; its head is unchanged."""
    head, source = head_of(module, shape), encoder.source
    own, given = body_of(module.state_dict(), head), body_of(encoder.tensors, head)
    was = f" (it is of {_short(encoder.about['model'])})" if "model" in encoder.about else ""
    for name, tensor in own.items():
        if name not in given:
            raise ConfigError(f"{source} has no tensor '{name}', and the model has{was}")
        if given[name].shape != tensor.shape:
            found, wanted = tuple(given[name].shape), tuple(tensor.shape)
            raise ConfigError(f"{source}: tensor '{name}' is {found}, and the model's is {wanted}{was}")
        if not bool(torch.isfinite(given[name]).all()):
            raise ConfigError(f"{source}: tensor '{name}' has values that are not finite")
    if other := sorted(set(given) - set(own)):
        raise ConfigError(f"{source} has a tensor '{other[0]}', and the model has none of that name{was}")
    layout = Layout.of(module)
    learned = {slot.name for slot in (*layout.parameters, *layout.buffers)}
    for name in sorted(set(own) - learned):
        if not torch.equal(given[name].to(own[name].dtype), own[name]):
            raise ConfigError(f"{source}: '{name}' differs from the model's, and training never changes it")
    module.load_state_dict(given, strict=False)


def save_encoder(path: Path, encoder: Encoder) -> None:
    """Write an encoder as a safetensors file, with the facts about it in the header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().contiguous() for name, tensor in encoder.tensors.items()}
    write_atomically(path, save(tensors, {_ABOUT: json.dumps(encoder.about)}))


def load_encoder(path: Path) -> Encoder:
    """Read a file of `save_encoder`, or any safetensors file, such as a run's model."""
    try:
        if path.is_dir():
            raise DataError(f"{path} is a folder, and a safetensors file with an encoder is expected")
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about = parse_json((file.metadata() or {}).get(_ABOUT, "{}"))
    except FileNotFoundError:
        raise DataError(f"{path} doesn't exist, and a safetensors file with an encoder is expected") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(f"{path} can't be read as safetensors ({error})") from None
    return Encoder(tensors, about if isinstance(about, dict) else {}, str(path))


def _short(model: Any) -> str:
    """`resnet10 with width 0.25, norm batch`."""
    if not isinstance(model, dict):
        return str(model)
    options = ", ".join(f"{name} {value}" for name, value in model.items() if name != "name")
    return f"{model.get('name')}" + (f" with {options}" if options else "")
