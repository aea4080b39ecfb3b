"""The interface of models, their registry, and how a model is built."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from mnemos.common.compiler import defer_compiler
from mnemos.common.imports import import_path
from mnemos.common.pools import settle_kernels
from mnemos.common.registry import Part, Registry
from mnemos.common.shapes import TokenShape, blank
from mnemos.errors import ConfigError
from mnemos.models.dropout import own_dropout
from mnemos.models.initialise import seeded
from mnemos.models.trial import trial

if TYPE_CHECKING:
    from mnemos.models.mixed import Mixed


class Model(Part):
    """The choice of a model."""

    shared: ClassVar[bool] = True
    """Whether it is one model, which all clients share."""
    convolutions: ClassVar[bool] = True
    """Whether it has convolutions, or may have."""
    takes_numbers: ClassVar[bool] = True
    """Whether it takes samples of numbers: images, or vectors of features."""
    takes_tokens: ClassVar[bool] = False
    """Whether it takes texts, which are rows of token ids; `shape` is then a `TokenShape`."""

    @property
    def serverless(self) -> bool:
        """Whether every client keeps a model of its own, and there is no server."""
        return False

    @property
    def exchange_samples(self) -> int | None:
        """How many samples models learn from each other on; None: they don't."""
        return None

    @property
    def mixture(self) -> Mixed | None:
        """The mixture, if this is one: clients then have different models."""
        return None

    @abstractmethod
    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A module that maps batches of samples of this shape to logits; called by `build_model`."""


class Classifier(nn.Module):
    """A body that maps samples to feature vectors, and a linear head on top of it.

    The head comes last among the parameters, so that the order of parameters is the order of layers.
    """

    def __init__(self, body: nn.Module, feature_dim: int, classes: int) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.body = body
        self.head = nn.Linear(feature_dim, classes)

    def features(self, x: Tensor) -> Tensor:
        """Feature vectors [B, feature_dim]."""
        features: Tensor = self.body(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, classes]."""
        logits: Tensor = self.head(self.features(x))
        return logits


class Custom(Model):
    """A user's own module, named by import path: a subclass of `nn.Module` or a function that returns one.

    It is called with `shape` and `classes` (and, for texts, with `ids`, the number of token ids), if its
    signature has them, and with `options`. Its own initial weights are kept.
    """

    takes_tokens: ClassVar[bool] = True

    target: ClassVar[Callable[..., Any]]

    options: dict[str, Any] = Field(default_factory=dict)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Call the class or function."""
        target, name = type(self).target, type(self).name
        try:
            signature = inspect.signature(target)
            known: dict[str, Any] = {"shape": shape, "classes": classes}
            if isinstance(shape, TokenShape):
                known["ids"] = shape.ids
            known = {key: value for key, value in known.items() if key in signature.parameters}
            call = signature.bind(**known | self.options)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"'{name}' can't be called with these options: {error}", "options") from None
        try:
            module = target(*call.args, **call.kwargs)
        except Exception as error:
            raise ConfigError(f"'{name}' can't be built: {_first_line(error)}") from error
        if not isinstance(module, nn.Module):
            raise ConfigError(f"'{name}' gives {type(module).__name__}, not a torch.nn.Module")
        return module

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.dump(),)


class Models(Registry[Model]):
    """The registry of models; an import path may name any module, which then becomes a `Custom` model."""

    def __init__(self) -> None:
        super().__init__("model", Model, "mnemos.models")
        self._custom: dict[str, type[Custom]] = {}

    def _by_path(self, path: str) -> type[Model]:
        target = import_path(path, self.kind)
        if isinstance(target, type) and issubclass(target, Model):
            return super()._by_path(path)
        is_module = isinstance(target, type) and issubclass(target, nn.Module)
        if not is_module and (isinstance(target, type) or not callable(target)):
            raise ConfigError(f"'{path}' is neither a torch.nn.Module nor a function that returns one")
        # One class per target, because parts of different classes are never equal.
        if path not in self._custom or self._custom[path].target is not target:

            class Found(Custom):
                __doc__ = target.__doc__

            Found.name, Found.target = path, target
            self._custom[path] = Found
        return self._custom[path]


models = Models()


def build_model(part: Model, shape: tuple[int, ...], classes: int, generator: torch.Generator) -> nn.Module:
    """A model with initial weights from `generator`, and with dropout layers that take a generator.

    Every layer draws in its constructor, from a global generator that is seeded for it: the same `generator`
    gives the same weights, the global state is restored, and a user's own initialisation (or pre-trained
    weights) is kept. A forward pass of a copy verifies that samples of this shape give one logit per class.
    """
    settle_kernels()  # whatever trains or evaluates begins here
    defer_compiler()
    check_samples(part, shape)
    with seeded(generator):
        module = own_dropout(part.build(shape, classes))
        check_output(module, shape, classes)
    return module


def check_samples(part: Model, shape: tuple[int, ...]) -> None:
    """Refuse a model that doesn't take such samples: numbers, or token ids."""
    texts = isinstance(shape, TokenShape)
    if part.takes_tokens if texts else part.takes_numbers:
        return
    fit = ", ".join(kind.name for kind in models if (kind.takes_tokens if texts else kind.takes_numbers))
    takes, found = ("texts", "numbers") if not texts else ("numbers", "texts (rows of token ids)")
    raise ConfigError(
        f"{part.name} takes {takes}, and the data's samples are {found}; allowed: {fit}, or your own", "name"
    )


def image_shape(shape: tuple[int, ...], least: int) -> tuple[int, int, int]:
    """(channels, height, width), or an error if samples aren't images of at least `least` pixels a side."""
    if len(shape) != 3:
        raise ConfigError(f"it takes images (channels, height, width); the data's samples have shape {shape}")
    channels, height, width = shape
    if min(height, width) < least:
        raise ConfigError(f"it takes images of at least {least}×{least}; the data's are {height}×{width}")
    return channels, height, width


def check_output(module: nn.Module, shape: tuple[int, ...], classes: int) -> None:
    """Refuse a module that doesn't return one logit per class for samples of this shape."""
    try:
        if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
            _materialise(module, shape)
        with trial(module, training=False) as twin:
            output = twin(blank(shape))
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"it can't take a batch of samples of shape {shape}: {_first_line(error)}"
        ) from error
    found = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
    if found != (2, classes):
        raise ConfigError(f"for 2 samples and {classes} classes it gives {found}, not {(2, classes)}")


def _materialise(module: nn.Module, shape: tuple[int, ...]) -> None:
    """Create the tensors of lazy layers by a first forward pass of the module itself."""
    modes = {layer: layer.training for layer in module.modules()}
    with torch.no_grad():
        module.eval()(blank(shape))
    for layer, mode in modes.items():
        layer.training = mode


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _restore(data: dict[str, Any]) -> Model:
    """Unpickle a `Custom` part, whose class is made at run time."""
    return models.parse(data)
