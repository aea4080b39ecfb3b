"""What a search chooses from: values or ranges of some fields of an experiment."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.studies.study import Changes, Range, Study

_RATES = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Local learning rates of the default space, as multiples of the experiment's own."""
_METHODS = ("fedavg", "fedprox", "scaffold", "fedavgm", "feddyn", "label-owners")
"""One of each kind: plain, held back, corrected, with momentum at the server, dual, weighted by label."""
_LOSSES = ("ce", "wsm", "fedlc")
"""Plain, and the two kinds of losses that know a client's label counts."""
_NORMS = ("batch", "group", "none")
_DIGITS = 3
_VARIANT = "variant"
"""The only field of a space that is given variant by variant."""


class Trial(Protocol):
    """What a space needs of a trial of Optuna."""

    def suggest_categorical(self, name: str, choices: Sequence[str]) -> Any:
        """One of the choices."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """A number in a range."""

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        """A whole number in a range."""


@dataclass(frozen=True)
class Space:
    """Choices or a range for each field, by dotted name; or whole variants of which one is chosen."""

    fields: Mapping[str, Sequence[Any] | Range]
    first: tuple[Changes, ...] = ()
    """What is tried before anything is drawn."""
    most: int | None = None
    """How many trials are drawn at the most, if the user says so."""
    variants: tuple[Changes, ...] = ()
    """The variants, instead of fields."""

    @property
    def size(self) -> float:
        """How many different choices there are; infinite with a range."""
        if self.variants:
            return len(self.variants)
        return math.prod(
            math.inf if isinstance(given, Range) else len(given) for given in self.fields.values()
        )

    def draw(self, trial: Trial) -> Changes:
        """The changes that a trial of Optuna stands for."""
        if self.variants:
            return self.variants[
                int(trial.suggest_categorical(_VARIANT, [str(i) for i in range(len(self.variants))]))
            ]
        return {field: _drawn(trial, field, given) for field, given in self.fields.items()}

    def params(self, changes: Changes) -> dict[str, Any]:
        """The parameters of a trial of Optuna that stands for these changes."""
        return {
            field: changes[field] if isinstance(given, Range) else json.dumps(changes[field])
            for field, given in self.fields.items()
        }

    def key(self) -> str:
        """A text that is equal for equal spaces."""
        fields = {
            field: given.model_dump() if isinstance(given, Range) else list(given)
            for field, given in self.fields.items()
        }
        return json.dumps([fields, self.variants], sort_keys=True)

    def at_edge(self, field: str, value: Any) -> bool:
        """Whether a number is the smallest or the largest that the space has for a field."""
        given = self.fields.get(field)
        if given is None or not isinstance(value, int | float):
            return False
        ends = (given.low, given.high) if isinstance(given, Range) else (min(given), max(given))
        return value in ends and ends[0] < ends[1]


def default_space(base: Experiment) -> Space:
    """Methods, losses and local learning rates; and norms, if the model has a choice of them.

    The experiment's own method, loss, rate and norm are among the choices, and are tried first.
    """
    own_method, own_loss = type(base.method).name, type(base.method.loss).name
    method: Any = base.method.dump() if _has_options(base) else own_method
    fields: dict[str, Sequence[Any]] = {
        "method": [method, *(name for name in _METHODS if name != own_method)],
        "method.loss": [own_loss, *(name for name in _LOSSES if name != own_loss)],
        "local.lr": [float(f"{factor * base.local.lr:.{_DIGITS}g}") for factor in _RATES],
    }
    own: Changes = {"method": method, "method.loss": own_loss, "local.lr": base.local.lr}
    norm = getattr(base.model, "norm", None)
    if norm is not None:
        fields["model.norm"] = [norm, *(name for name in _NORMS if name != norm)]
        own["model.norm"] = norm
    return Space(fields, (own, {**own, "method": "fedavg", "method.loss": "wsm"}))


def space_of(study: Study) -> Space:
    """The space of a study: the values of its grid, the fields of its random search, or its variants."""
    if study.grid is not None:
        return Space(study.grid)
    if study.random is not None:
        return Space(study.random.fields, most=study.random.trials)
    given = tuple(study.list or (study.variants or {}).values())
    if len(given) < 2:
        raise ConfigError("found one variant; a search needs two or more")
    return Space({}, variants=given)


def _has_options(base: Experiment) -> bool:
    """Whether the experiment's method has options other than the preset's, besides the loss."""
    plain = base.override({"method": type(base.method).name}).method.dump()
    own = base.method.dump()
    return {**plain, "loss": None} != {**own, "loss": None}


def _drawn(trial: Trial, field: str, given: Sequence[Any] | Range) -> Any:
    if not isinstance(given, Range):
        # Optuna's choices are numbers and text, and a choice of ours may be a whole part with its options.
        return json.loads(trial.suggest_categorical(field, [json.dumps(value) for value in given]))
    if given.whole:
        return trial.suggest_int(field, int(given.low), int(given.high), log=given.log)
    return float(f"{trial.suggest_float(field, given.low, given.high, log=given.log):.4g}")
