"""Writing event files for TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from mnemos.runs.directory import Status
from mnemos.runs.run import Run
from mnemos.track.sink import FINAL, Channel, Parameter, Sink, Values, parameters, require, sinks


@sinks.register("tensorboard")
class TensorBoard(Sink):
    """Writes scalars by round, and the experiment for the HParams page."""

    folder: str | None = Field(None, min_length=1)
    """A folder in which each run gets a folder; if left out, `tensorboard` in the run's directory."""

    def check(self) -> None:
        """Check that TensorBoard is installed."""
        _Library()

    def open(self, run: Run, round: int) -> Channel:
        """Go on in the run's folder; events of rounds after `round` are declared void."""
        folder = run.file("tensorboard")
        if self.folder is not None:
            folder = Path(self.folder).expanduser() / run.path.name
        return _Events(folder, round, run.path.name, parameters(run.experiment))


class _Library:
    """The modules of TensorBoard that are needed; none of them needs TensorFlow."""

    def __init__(self) -> None:
        def module(name: str) -> Any:
            return require(f"tensorboard.{name}", "tensorboard")

        self.events = module("compat.proto.event_pb2")
        self.summaries = module("compat.proto.summary_pb2")
        self.reading = module("backend.event_processing.event_accumulator")
        self.writing = module("summary.writer.event_file_writer")
        self.hparams = module("plugins.hparams.summary_v2")
        self.hparams_api = module("plugins.hparams.api_pb2")
        self.hparams_data = module("plugins.hparams.plugin_data_pb2")
        self.hparams_metadata = module("plugins.hparams.metadata")

    def scalars(self, values: Values) -> Any:
        """A summary with several numbers of one step."""
        value = self.summaries.Summary.Value
        return self.summaries.Summary(
            value=[value(tag=name, simple_value=found) for name, found in values.items()]
        )

    def success(self) -> Any:
        """A summary that says that the run succeeded; TensorBoard's own function needs TensorFlow."""
        metadata = self.hparams_metadata
        info = self.hparams_data.SessionEndInfo(
            status=self.hparams_api.STATUS_SUCCESS, end_time_secs=time.time()
        )
        data = self.hparams_data.HParamsPluginData(session_end_info=info)
        value = self.summaries.Summary.Value(
            tag=metadata.SESSION_END_INFO_TAG,
            metadata=metadata.create_summary_metadata(data),
            tensor=metadata.NULL_TENSOR,
        )
        return self.summaries.Summary(value=[value])

    def steps(self, folder: Path) -> dict[str, set[int]]:
        """The steps of each scalar in a folder's event files, by name."""
        if not folder.exists():
            return {}
        found = self.reading.EventAccumulator(str(folder), size_guidance={self.reading.SCALARS: 0})
        found.Reload()
        return {name: {event.step for event in found.Scalars(name)} for name in found.Tags()["scalars"]}


class _Events:
    """A new event file in a folder that may have older ones."""

    def __init__(self, folder: Path, round: int, name: str, described: dict[str, Parameter]) -> None:
        self._library = library = _Library()
        steps = library.steps(folder)
        self.reached = min(round, max(set().union(*steps.values()), default=0))
        self._finals = {step for step in steps.get(FINAL, ()) if step <= self.reached}
        self._file = library.writing.EventFileWriter(str(folder))
        if steps:
            # When readers meet this event, they drop events of this step and later ones.
            log = library.events.SessionLog
            self._add(self.reached + 1, session_log=log(status=log.START))
        self._add(0, summary=library.hparams.hparams_pb(described, trial_id=name))
        self._file.flush()

    def log(self, rounds: Mapping[int, Values]) -> None:
        """Write an event for each round, so that a crash can't leave half of a round."""
        for round, values in rounds.items():
            self._add(round, summary=self._library.scalars(values))
        self._file.flush()

    def close(self, status: Status) -> None:
        """Write the final accuracy and how the run ended."""
        if status.accuracy is not None and status.rounds not in self._finals:
            self._add(status.rounds, summary=self._library.scalars({FINAL: status.accuracy}))
        if status.status == "finished":  # any other status can change, and readers use the first they find
            self._add(0, summary=self._library.success())
        self._file.close()

    def _add(self, step: int, **content: Any) -> None:
        self._file.add_event(self._library.events.Event(wall_time=time.time(), step=step, **content))
