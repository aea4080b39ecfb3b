"""Runs in MLflow: on a tracking server, or in a database file beside the run's directory."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import Field

from mnemos.runs.directory import Status
from mnemos.runs.run import Run
from mnemos.track.sink import (
    FINAL,
    Channel,
    Parameter,
    Sink,
    Values,
    keep_id,
    known_id,
    parameters,
    require,
    sinks,
)

_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    # With MLflow's defaults, a server that fails delays a round by minutes, and one that never answers by 15.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}
"""Environment variables, because MLflow has no other way to set these; the user's own values are kept."""

_METRICS_AT_ONCE, _PARAMETERS_AT_ONCE, _LONGEST_VALUE = 1000, 100, 6000
"""MLflow's limits: metrics and parameters in a request, and characters of a parameter's value."""

_STATES = {"finished": "FINISHED", "interrupted": "KILLED", "paused": "KILLED"}


@sinks.register("mlflow")
class Mlflow(Sink):
    """Sends metrics by round, and the experiment as parameters; no files."""

    tracking_uri: str | None = Field(None, min_length=1)
    """The server or store; if left out, $MLFLOW_TRACKING_URI, or mlflow.db beside the run's directory."""
    experiment: str | None = Field(None, min_length=1)
    """The name of MLflow's group of runs; if left out, $MLFLOW_EXPERIMENT_NAME, or `mnemos`."""

    def check(self) -> None:
        """Check that MLflow is installed, and two packages that it needs for a database file."""
        _package()
        for name in ("sqlalchemy", "alembic"):
            require(name, name)

    def open(self, run: Run, round: int) -> Channel:
        """Go on with MLflow's entry for the run, or make one."""
        mlflow = _package()
        # From 3.13 on, MLflow refuses to store runs in plain files.
        beside = f"sqlite:///{run.path.parent.resolve() / 'mlflow.db'}"
        uri = self.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or beside
        name = self.experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "mnemos"
        # MLflow makes the tables of a new database, and fails if two runs do so at the same time.
        with _in_turn(run.path.parent / ".mlflow.lock"):
            client = mlflow.MlflowClient(tracking_uri=uri)
            group = client.get_experiment_by_name(name)
            group_id = group.experiment_id if group else client.create_experiment(name)
        entry = _known(mlflow, client, known_id(run, "mlflow"))
        if entry is None:
            entry = client.create_run(group_id, run_name=run.path.name)
            keep_id(run, "mlflow", entry.info.run_id)
        else:
            client.update_run(entry.info.run_id, status="RUNNING")
        return _Entry(mlflow.entities, client, entry, parameters(run.experiment))


class _Entry:
    """MLflow's entry for a run."""

    def __init__(self, entities: Any, client: Any, entry: Any, described: Mapping[str, Parameter]) -> None:
        self._entities, self._client, self._id = entities, client, entry.info.run_id
        histories = [client.get_metric_history(self._id, name) for name in entry.data.metrics]
        self.reached = max((metric.step for history in histories for metric in history), default=0)
        self._final = entry.data.metrics.get(FINAL)
        self._describe(entry.data.params, {_name(name): str(value) for name, value in described.items()})

    def log(self, rounds: Mapping[int, Values]) -> None:
        """Send the metrics of a round in one request, so that MLflow has all of them or none."""
        now = int(time.time() * 1000)
        batch: list[Any] = []
        for round, values in rounds.items():
            if len(batch) + len(values) > _METRICS_AT_ONCE:
                self._client.log_batch(self._id, metrics=batch)
                batch = []
            batch += [self._entities.Metric(_name(name), value, now, round) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=batch)

    def close(self, status: Status) -> None:
        """Log the final accuracy and how the run ended."""
        if status.accuracy is not None and status.accuracy != self._final:
            self.log({status.rounds: {FINAL: status.accuracy}})
        self._client.set_tag(self._id, "status", status.status)
        self._client.set_terminated(self._id, _STATES.get(status.status, "FAILED"))

    def _describe(self, known: Mapping[str, str], described: Mapping[str, str]) -> None:
        """Set parameters. MLflow can't change them later, so one that a resume changes becomes a tag."""
        new = [
            self._entities.Param(name, value[:_LONGEST_VALUE])
            for name, value in described.items()
            if name not in known
        ]
        for first in range(0, len(new), _PARAMETERS_AT_ONCE):
            self._client.log_batch(self._id, params=new[first : first + _PARAMETERS_AT_ONCE])
        for name, value in described.items():
            if known.get(name, value[:_LONGEST_VALUE]) != value[:_LONGEST_VALUE]:
                self._client.set_tag(self._id, name, value[:_LONGEST_VALUE])


def _package() -> Any:
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    return require("mlflow", "mlflow-skinny")


def _known(mlflow: Any, client: Any, identifier: str | None) -> Any:
    """The entry with an id; None if this store doesn't have it."""
    if identifier is None:
        return None
    try:
        entry = client.get_run(identifier)
    except mlflow.MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise
    return entry if entry.info.lifecycle_stage == "active" else None


@contextmanager
def _in_turn(path: Path) -> Iterator[None]:
    """Exclude other processes by a lock on a file; the system unlocks it when the file is closed."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _name(name: str) -> str:
    """A name with only those characters that MLflow allows."""
    return re.sub(r"[^\w\-. :/]", "_", name)[:250]
