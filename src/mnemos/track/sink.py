"""The interface of sinks, which take a run's numbers elsewhere, and what all sinks share."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

from mnemos.common import extras
from mnemos.common.registry import Part, Registry
from mnemos.experiment.experiment import Experiment
from mnemos.experiment.overrides import flatten
from mnemos.runs.directory import Status
from mnemos.runs.run import Run

Values = Mapping[str, float]
"""A round's numbers of the whole federation, by name; all are finite."""

Parameter = str | int | float | bool

FINAL = "final_accuracy"
"""The name of a finished run's accuracy."""

_KNOWN = "tracking.json"
"""The file in the run's directory with each sink's id of the run."""


class Channel(Protocol):
    """A sink that has been opened for one run."""

    @property
    def reached(self) -> int:
        """The last round that the sink has from before; only later rounds are logged."""

    def log(self, rounds: Mapping[int, Values]) -> None:
        """Take the numbers of some rounds, in rising order."""

    def close(self, status: Status) -> None:
        """Take the status of the run, which has ended or was interrupted."""


class Sink(Part):
    """A file or service to send a run's numbers to; its fields are its options."""

    def check(self) -> None:
        """Raise a ConfigError if the sink can't work here; called before anything is trained."""

    @abstractmethod
    def open(self, run: Run, round: int) -> Channel:
        """Open the sink for a run that has done `round` rounds."""


sinks: Registry[Sink] = Registry("sink", Sink, "mnemos.track")


def require(module: str, package: str) -> Any:
    """Import a module that a sink needs; a ConfigError names the `package` to install."""
    return extras.require(module, package, "track")


def parameters(experiment: Experiment) -> dict[str, Parameter]:
    """An experiment's fields by dotted name; lists and nulls are written as JSON."""
    return {
        name: value if isinstance(value, Parameter) else json.dumps(value)
        for name, value in flatten(experiment.model_dump(mode="json"))
    }


def known_id(run: Run, sink: str) -> str | None:
    """The id that a sink has for the run; None if it hasn't seen it before."""
    return _ids(run).get(sink)


def keep_id(run: Run, sink: str, identifier: str) -> None:
    """Record the id that a sink has for the run."""
    run.write_json(_KNOWN, {**_ids(run), sink: identifier})


def _ids(run: Run) -> dict[str, Any]:
    return run.read_json(_KNOWN) if run.file(_KNOWN).exists() else {}
