"""Optimisers of other libraries: any class like those of `torch.optim`, on views of the vector."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, Self

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from mnemos.common.devices import CPU, send
from mnemos.common.imports import import_path, note
from mnemos.errors import ConfigError
from mnemos.optim.optimizer import Optimizer, Rate, State, optimizers
from mnemos.vector import Layout

_MADE = "made"
"""The entry that is 1 if the state's optimiser has made a step, otherwise 0."""
_SET = ("lr", "weight_decay")
"""Options that are set before every step."""
_GROUP = ""


class _Live:
    """An optimiser of a library and its parameters, one per tensor of the layout.

    Such an optimiser keeps numbers in two places: a dictionary for each parameter, and its parameter group.
    """

    def __init__(
        self,
        make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
        layout: Layout,
        device: torch.device = CPU,
    ) -> None:
        self._layout, self.device = layout, device
        self._parameters = {
            slot.name: nn.Parameter(torch.ones(slot.shape, device=device)) for slot in layout.parameters
        }
        self._optimizer = make(list(self._parameters.values()))
        (self._group,) = self._optimizer.param_groups
        self._given = dict(self._group)

    @property
    def settings(self) -> frozenset[str]:
        """The names of the optimiser's options."""
        return frozenset(self._given)

    def step(self, parameters: Tensor, gradient: Tensor, lr: float, decay: float) -> None:
        """One step in place."""
        values, gradients = self._layout.views(parameters), self._layout.views(gradient)
        for name, parameter in self._parameters.items():
            parameter.data, parameter.grad = values[name], gradients[name]
        self._group["lr"] = lr
        if "weight_decay" in self.settings:
            self._group["weight_decay"] = decay
        self._optimizer.step()

    @property
    def numbers(self) -> State:
        """All numbers that the optimiser keeps, as tensors where it has them, and counters as scalars."""
        found = {f"{owner}/{key}": _as_tensor(value) for owner, _, key, value in self._kept()}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    @property
    def others(self) -> list[str]:
        """The names of kept values that aren't numbers."""
        return [key for _, _, key, value in self._kept() if value is not None and _as_tensor(value) is None]

    def load(self, state: State) -> None:
        """Set the kept numbers to those of a state; the optimiser must have made a step."""
        entries = [entry for entry in self._kept() if f"{entry[0]}/{entry[2]}" in state]
        here = [not (isinstance(value, Tensor) and value.device == self.device) for *_, value in entries]
        given = [state[f"{owner}/{key}"] for owner, _, key, _ in entries]
        # Counters are on the host, and all of them come there in one piece.
        counters = iter(_on_host([tensor for tensor, host in zip(given, here, strict=True) if host]))
        for (_, kept, key, value), tensor, host in zip(entries, given, here, strict=True):
            number = next(counters) if host else tensor
            kept[key] = number.to(value) if isinstance(value, Tensor) else type(value)(float(number))

    def _kept(self) -> Iterator[tuple[str, dict[str, Any], str, Any]]:
        """(owner, dictionary, key, value) of everything that steps may change."""
        for key, value in self._group.items():
            if key not in {"params", *_SET} and not (key in self._given and self._given[key] is value):
                yield _GROUP, self._group, key, value
        for name, parameter in self._parameters.items():
            kept = self._optimizer.state.get(parameter, {})
            for key, value in kept.items():
                yield name, kept, key, value


def _on_host(tensors: list[Tensor]) -> list[Tensor]:
    """Float32 tensors of a device on the host, fetched in one piece."""
    if not tensors:
        return []
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors]).cpu()
    pieces = torch.split(flat, [tensor.numel() for tensor in tensors])
    return [piece.view(tensor.shape) for piece, tensor in zip(pieces, tensors, strict=True)]


def _as_tensor(value: Any) -> Tensor | None:
    """A number or real tensor as a float32 tensor; None if it is neither."""
    if isinstance(value, Tensor):
        if value.is_complex():
            return None
        return value if value.dtype == torch.float32 else value.float()
    return torch.tensor(float(value)) if isinstance(value, int | float) else None


class _State(dict[str, Tensor]):
    """The numbers of a library's optimiser by name, as they were at the round's start, with the optimiser."""

    def __init__(self, numbers: State, live: _Live, stepped: _Live) -> None:
        device = live.device
        super().__init__({name: torch.zeros_like(value, device=device) for name, value in numbers.items()})
        self[_MADE] = torch.zeros(1, device=live.device)
        self.live, self._stepped = live, stepped
        self._begun = False

    def begin(self) -> None:
        """Load the state's numbers into the optimiser, if they come from an earlier round."""
        if not self._begun and self[_MADE]:
            self.live = self._stepped
            self.live.load(self)
        self._begun = True

    def settled(self) -> State:
        """The numbers as they are now."""
        if not self._begun:
            return dict(self)
        # Fetched when a round is over: counters of the host would be sent to the device in every step.
        return {**self, **send(self.live.numbers, self.live.device), _MADE: torch.ones_like(self[_MADE])}


class Adapter(Optimizer):
    """Runs a class like those of `torch.optim`, whose step works on tensors instead of the vector."""

    vectorised = False

    @abstractmethod
    def make(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """An optimiser of these parameters; its learning rate and weight decay are set before every step."""

    def check(self, layout: Layout, *, kept: bool, decay: float) -> None:
        """Refuse a class that can't be imported, created or run, and a state that can't be kept."""
        before = torch.get_rng_state()
        live = self._stepped(layout)
        if not torch.equal(before, torch.get_rng_state()):
            torch.set_rng_state(before)
            raise ConfigError("it draws from the global random generator, so no result could be repeated")
        if "lr" not in live.settings:
            raise ConfigError("it has no learning rate 'lr' that local.lr could set")
        if decay and "weight_decay" not in live.settings:
            raise ConfigError("it has no 'weight_decay'; allowed: local.weight_decay=0")
        if kept and live.others:
            raise ConfigError(
                f"its state has '{live.others[0]}', which isn't made of numbers, so it can't be kept; "
                "local.optimizer_state=fresh doesn't need that"
            )

    def init(self, parameters: Tensor, layout: Layout) -> State:
        """A state of zeros with the names and shapes that the optimiser has after its first step."""
        stepped = self._stepped(layout, parameters.device)
        return _State(stepped.numbers, _Live(self.make, layout, parameters.device), stepped)

    def step(self, parameters: Tensor, gradient: Tensor, state: State, lr: Rate, decay: float) -> None:
        """One step in place; the class decides whether weight decay is coupled."""
        assert isinstance(state, _State)
        assert isinstance(lr, float)
        state.begin()
        state.live.step(parameters, gradient, lr, decay)

    def settled(self, state: State) -> State:
        """The numbers that the class has kept in the round."""
        assert isinstance(state, _State)
        return state.settled()

    def _stepped(self, layout: Layout, device: torch.device = CPU) -> _Live:
        """An optimiser after a step on arbitrary numbers, which creates everything that it keeps."""
        try:
            live, ones = _Live(self.make, layout, device), torch.ones(layout.size, device=device)
            live.step(ones, ones.clone(), 1e-3, 0.0)
        except ConfigError:
            raise
        except Exception as error:  # such as wrong options
            reason = (str(error) or "no reason given").splitlines()[0]
            raise ConfigError(f"it can't make a step ({type(error).__name__}: {reason})") from error
        return live


@optimizers.register("library")
class Library(Adapter):
    """Any class like those of `torch.optim`, by import path."""

    path: str = Field(description="package.module:Class")
    options: dict[str, Any] = Field({}, description="the arguments of the class, but lr and weight_decay")

    @field_validator("options")
    @classmethod
    def _not_those_of_local(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in _SET:
            if name in value:
                raise ValueError(f"found '{name}'; it is set by local.{name}")
        return value

    @model_validator(mode="after")
    def _named(self) -> Self:
        note(self.path, self.options)
        return self

    def make(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """An object of the class at `path`, with `options`."""
        if self.path.startswith("pytorch_optimizer") and find_spec("pytorch_optimizer") is None:
            raise _missing(self.path)
        try:
            found: Any = import_path(self.path, "optimizer")
        except ConfigError as error:
            raise error.under("path") from None
        if not (inspect.isclass(found) and issubclass(found, torch.optim.Optimizer)):
            raise ConfigError(f"'{self.path}' is not a class like those of torch.optim", "path")
        # Some classes require a learning rate, which is replaced before every step.
        make: Callable[..., torch.optim.Optimizer] = found
        return make(parameters, lr=1e-3, **self.options)


@optimizers.register("adamp")
class AdamP(Adapter):
    """Adam that removes the radial component from steps of scale-invariant weights (arXiv 2006.08217).

    Weights are taken as scale-invariant if |cos(g, w)| < δ / √dim, first channel by channel, then for the
    whole tensor; their weight decay, which is decoupled, is multiplied by `wd_ratio`. From the library
    pytorch-optimizer.
    """

    beta1: float = Field(0.9, ge=0, lt=1)
    """Decay of the mean of the gradients."""
    beta2: float = Field(0.999, ge=0, lt=1)
    """Decay of the mean of their squares."""
    eps: float = Field(1e-8, gt=0)
    """Added to the root of the mean of the squares."""
    delta: float = Field(0.1, ge=0, description="below which cosine (times √dim) the scale doesn't matter")
    wd_ratio: float = Field(0.1, ge=0, le=1, description="factor on weight decay there")
    nesterov: bool = False
    """Whether the momentum is Nesterov's."""

    def make(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """The library's AdamP."""
        try:
            from pytorch_optimizer import AdamP as Theirs
        except ImportError as error:
            raise _missing("adamp") from error
        return Theirs(
            parameters,
            betas=(self.beta1, self.beta2),
            eps=self.eps,
            delta=self.delta,
            wd_ratio=self.wd_ratio,
            nesterov=self.nesterov,
        )


def _missing(name: str) -> ConfigError:
    return ConfigError(
        f"'{name}' needs the package pytorch-optimizer, which Mnemos installs with its extra 'optim'"
    )
