"""The interface of everything that takes a run's numbers elsewhere, and what all of them share."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

from mnemos import extras
from mnemos.experiment import Experiment
from mnemos.overrides import flatten
from mnemos.registry import Part, Registry
from mnemos.runs.run import Run, Status

Values = Mapping[str, float]
"""The numbers of one round that speak of the whole federation, by name; all are finite."""

Parameter = str | int | float | bool

FINAL = "final_accuracy"
"""What the accuracy of a finished run is called."""

_KNOWN = "tracking.json"
"""The run's file that says under which id a sink knows it."""


class Channel(Protocol):
    """A sink that has been opened for one run."""

    @property
    def reached(self) -> int:
        """The last round it has from earlier. It isn't given again what it has."""

    def log(self, rounds: Mapping[int, Values]) -> None:
        """Take the numbers of some rounds, in their order."""

    def close(self, status: Status) -> None:
        """The run is over, at least for now."""


class Sink(Part):
    """Somewhere to send a run's numbers: its options, and how to open it."""

    def check(self) -> None:
        """Raise a `ConfigError` if it can't work here; called before anything is trained."""

    @abstractmethod
    def open(self, run: Run, round: int) -> Channel:
        """Begin with a run that has done `round` rounds, or go on with it."""


sinks: Registry[Sink] = Registry("sink", Sink, "mnemos.track")


def require(module: str, package: str) -> Any:
    """A module of a package that sinks need."""
    return extras.require(module, package, "track")


def parameters(experiment: Experiment) -> dict[str, Parameter]:
    """An experiment as a flat mapping from dotted names; lists and nulls are spelt out as JSON."""
    return {
        name: value if isinstance(value, Parameter) else json.dumps(value)
        for name, value in flatten(experiment.model_dump(mode="json"))
    }


def known_id(run: Run, sink: str) -> str | None:
    """The id under which a sink knows the run, if it has seen it before."""
    return _ids(run).get(sink)


def keep_id(run: Run, sink: str, identifier: str) -> None:
    """Remember the id under which a sink knows the run."""
    run.write_json(_KNOWN, {**_ids(run), sink: identifier})


def _ids(run: Run) -> dict[str, Any]:
    return run.read_json(_KNOWN) if run.file(_KNOWN).exists() else {}
