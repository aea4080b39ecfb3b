"""Optimisers of other libraries: any class like those of `torch.optim`, on views of the vector."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from mnemos.errors import ConfigError
from mnemos.optim.optimizer import Optimizer, Rate, State, optimizers
from mnemos.registry import import_path
from mnemos.vector import Layout

_MADE = "made"
"""Whether a state has seen a step: 1 or 0."""
_SET = ("lr", "weight_decay")
"""What every step sets anew."""
_GROUP = ""


class _Live:
    """An optimiser of a library and the parameters it works on, one a tensor of the layout.

    It keeps numbers in two places: a dictionary for each parameter, and its group of parameters.
    """

    def __init__(self, make: Callable[[list[nn.Parameter]], torch.optim.Optimizer], layout: Layout) -> None:
        self._layout = layout
        self._parameters = {slot.name: nn.Parameter(torch.ones(slot.shape)) for slot in layout.parameters}
        self._optimizer = make(list(self._parameters.values()))
        (self._group,) = self._optimizer.param_groups
        self._given = dict(self._group)

    @property
    def settings(self) -> frozenset[str]:
        """The names of its options."""
        return frozenset(self._given)

    def step(self, parameters: Tensor, gradient: Tensor, lr: float, decay: float) -> None:
        """One step in place."""
        here, slopes = self._layout.views(parameters), self._layout.views(gradient)
        for name, parameter in self._parameters.items():
            parameter.data, parameter.grad = here[name], slopes[name]
        self._group["lr"] = lr
        if "weight_decay" in self.settings:
            self._group["weight_decay"] = decay
        self._optimizer.step()

    @property
    def numbers(self) -> State:
        """All numbers it keeps: its own tensors where there are any, what it counts as tensors of one."""
        found = {f"{owner}/{key}": _as_tensor(value) for owner, _, key, value in self._kept()}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    @property
    def others(self) -> list[str]:
        """What it keeps that isn't a number."""
        return [key for _, _, key, value in self._kept() if value is not None and _as_tensor(value) is None]

    def load(self, state: State) -> None:
        """Take over numbers that were found before; it has places for them once it has made a step."""
        for owner, place, key, value in list(self._kept()):
            given = state.get(f"{owner}/{key}")
            if given is not None:
                place[key] = given.to(value.dtype) if isinstance(value, Tensor) else type(value)(float(given))

    def _kept(self) -> Iterator[tuple[str, dict[str, Any], str, Any]]:
        """(owner, dictionary, key, value) of everything that steps may change."""
        for key, value in self._group.items():
            if key not in {"params", *_SET} and not (key in self._given and self._given[key] is value):
                yield _GROUP, self._group, key, value
        for name, parameter in self._parameters.items():
            place = self._optimizer.state.get(parameter, {})
            for key, value in place.items():
                yield name, place, key, value


def _as_tensor(value: Any) -> Tensor | None:
    """A number or tensor as a tensor of float32; None if it is neither."""
    if isinstance(value, Tensor):
        if value.is_complex():
            return None
        return value if value.dtype == torch.float32 else value.float()
    return torch.tensor(float(value)) if isinstance(value, int | float) else None


class _State(dict[str, Tensor]):
    """The numbers of a library's optimiser by name, and the optimiser whose they are."""

    def __init__(self, numbers: State, live: _Live, stepped: _Live) -> None:
        super().__init__({name: torch.zeros_like(number) for name, number in numbers.items()})
        self[_MADE] = torch.zeros(1)
        self.live, self._stepped = live, stepped
        self._begun = False

    def begin(self) -> None:
        """Go on from the numbers that are here, if they are those of an earlier round."""
        if not self._begun and self[_MADE]:
            self.live = self._stepped
            self.live.load(self)
        self._begun = True

    def renew(self) -> None:
        """The numbers after a step."""
        self.update(self.live.numbers)
        self[_MADE] = torch.ones(1)


class Adapter(Optimizer):
    """Runs a class like those of `torch.optim`, whose step knows the tensors' shapes."""

    vectorised = False

    @abstractmethod
    def make(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimiser of these parameters; learning rate and weight decay are set before every step."""

    def check(self, layout: Layout, *, kept: bool, decay: float) -> None:
        """Refuse a class that can't be had, made or run, and a state that can't be kept."""
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
        """The places for its numbers; it makes its own of them in its first step."""
        stepped = self._stepped(layout)
        return _State(stepped.numbers, _Live(self.make, layout), stepped)

    def step(self, parameters: Tensor, gradient: Tensor, state: State, lr: Rate, decay: float) -> None:
        """One step in place; what weight decay does is the class's own business."""
        assert isinstance(state, _State)
        assert isinstance(lr, float)
        state.begin()
        state.live.step(parameters, gradient, lr, decay)
        state.renew()

    def _stepped(self, layout: Layout) -> _Live:
        """An optimiser after a step on numbers of no importance: what it keeps shows only then."""
        try:
            live = _Live(self.make, layout)
            live.step(torch.ones(layout.size), torch.ones(layout.size), 1e-3, 0.0)
        except ConfigError:
            raise
        except Exception as error:  # whatever the library thinks of its options
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

    def make(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """An object of the class."""
        if self.path.startswith("pytorch_optimizer") and find_spec("pytorch_optimizer") is None:
            raise _missing(self.path)
        try:
            found: Any = import_path(self.path, "optimizer")
        except ConfigError as error:
            raise error.under("path") from None
        if not (inspect.isclass(found) and issubclass(found, torch.optim.Optimizer)):
            raise ConfigError(f"'{self.path}' is not a class like those of torch.optim", "path")
        # Some classes must be given a rate, which no step will see.
        make: Callable[..., torch.optim.Optimizer] = found
        return make(parameters, lr=1e-3, **self.options)


@optimizers.register("adamp")
class AdamP(Adapter):
    """Adam that takes the radial part out of steps of weights whose scale doesn't matter (arXiv 2006.08217).

    That is where |cos(g, w)| < δ / √dim, asked channel by channel and then of the whole tensor; weight decay,
    which is decoupled, is multiplied by `wd_ratio` there. From the library pytorch-optimizer.
    """

    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.999, ge=0, lt=1)
    eps: float = Field(1e-8, gt=0)
    delta: float = Field(0.1, ge=0, description="below which cosine (times √dim) the scale doesn't matter")
    wd_ratio: float = Field(0.1, ge=0, le=1, description="factor on weight decay there")
    nesterov: bool = False

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
