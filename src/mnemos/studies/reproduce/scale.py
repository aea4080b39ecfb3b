"""Scaling an experiment down, by the rules in `names.RULES`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from mnemos.data.partition import Ints
from mnemos.data.partitions.dirichlet import Dirichlet
from mnemos.data.streams.tasks import Tasks
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.experiment.overrides import flatten
from mnemos.models.resnet import ResNet
from mnemos.optim.schedule import Cosine, Schedule, Steps
from mnemos.starts.fractals import FromFractals

_ALL_CLIENTS = 0.1
"""Down to this scale all clients take part."""
_HOW = ("partition.name", "partition.population")
"""Fields that only say how the number of clients is reduced; `partition.clients` says that it is."""
_FEWEST_CLIENTS, _SMALLEST_COHORT = 4, 2
NARROWEST = 1 / 8
"""The least that the width of a ResNet is multiplied by."""


class FirstClients(Dirichlet):
    """The first clients of a larger population, each with exactly the samples that it has there."""

    population: int

    def assign(self, labels: Ints, owners: Ints | None, rng: Any) -> tuple[Ints, Ints]:
        """Partition the samples among the whole population, and keep the first clients."""
        everyone = Dirichlet(clients=self.population, validation=self.validation, alpha=self.alpha)
        order, offsets = everyone.assign(labels, owners, rng)
        return order[: offsets[self.clients]], offsets[: self.clients + 1]


def check_scale(scale: float) -> float:
    """Return the scale, or raise a ConfigError if it isn't in (0, 1]."""
    if not 0 < scale <= 1:
        raise ConfigError(f"found {scale:g}; allowed: > 0 and ≤ 1", "scale")
    return scale


def scaled_round(round: int, scale: float, least: int = 1) -> int:
    """A round, or a number of rounds, multiplied by the scale and rounded; at least `least`."""
    return max(least, math.floor(round * scale + 0.5))


def shrink(experiment: Experiment, scale: float) -> Experiment:
    """The experiment at a scale; at 1, the experiment itself."""
    if check_scale(scale) == 1:
        return experiment
    stream = experiment.stream
    rounds = scaled_round(experiment.rounds, scale, stream.tasks if isinstance(stream, Tasks) else 2)
    when = experiment.evaluate
    changes: dict[str, Any] = {
        "rounds": rounds,
        "evaluate.every": scaled_round(when.every, scale),
        "evaluate.test_last": min(rounds, scaled_round(when.test_last, scale)) if when.test_last else 0,
        "evaluate.test_every": scaled_round(when.test_every, scale) if when.test_every else 0,
        "evaluate.forgetting": _forgetting(when.forgetting, scale),
    }
    if isinstance(experiment.model, ResNet):
        changes["model.width"] = round(experiment.model.width * max(NARROWEST, math.sqrt(scale)), 4)
    if isinstance(experiment.start, FromFractals):
        changes["start.images"] = scaled_round(experiment.start.images, scale)
    changes |= _schedule(experiment.local.schedule, scale)
    return experiment.override(changes | _population(experiment, scale))


def _forgetting(rounds: int | tuple[int, ...], scale: float) -> int | list[int]:
    if isinstance(rounds, int):
        return scaled_round(rounds, scale) if rounds else 0
    return sorted({scaled_round(round, scale) for round in rounds})


def _schedule(schedule: Schedule, scale: float) -> dict[str, Any]:
    """Changes that scale a learning-rate schedule. Epochs scale like rounds, because local epochs stay."""
    if isinstance(schedule, Steps):
        return {"local.schedule.size": scaled_round(schedule.size, scale)}
    if isinstance(schedule, Cosine) and schedule.length is not None:
        return {"local.schedule.length": scaled_round(schedule.length, scale)}
    return {}


def _population(experiment: Experiment, scale: float) -> dict[str, Any]:
    """Changes that reduce the number of clients and the cohort; each client keeps its samples."""
    partition = experiment.partition
    if scale >= _ALL_CLIENTS or not isinstance(partition, Dirichlet):
        return {}
    clients = max(_FEWEST_CLIENTS, round(partition.clients * scale / _ALL_CLIENTS))
    if clients >= partition.clients:
        return {}
    cohort = max(1, math.floor(experiment.participation * partition.clients + 1e-9))
    least = min(_SMALLEST_COHORT, cohort)
    smaller = math.floor(experiment.participation * clients + 1e-9)
    return {
        "partition": {
            "name": f"{__name__}:{FirstClients.__name__}",
            **partition.model_dump(mode="json"),
            "clients": clients,
            "population": partition.clients,
        },
        "participation": experiment.participation if smaller >= least else least / clients,
    }


def differences(pairs: Iterable[tuple[Experiment, Experiment]]) -> list[str]:
    """A line such as `rounds: 4000 → 400` for each setting that differs in any pair (before, after)."""
    found: dict[str, None] = {}
    for before, after in pairs:
        old, new = (dict(flatten(experiment.model_dump(mode="json"))) for experiment in (before, after))
        for field in dict.fromkeys([*old, *new]):
            if field not in _HOW and old.get(field) != new.get(field):
                found[f"{field}: {_short(old.get(field))} → {_short(new.get(field))}"] = None
    return sorted(found)


def _short(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "–" if value is None else str(value)
