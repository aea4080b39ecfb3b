"""Sending a run's numbers to sinks while it goes on, beside its observer.

Sinks follow the run's own metrics file. When a run starts or is resumed, a sink gets the rounds that it
doesn't have yet from there: the run may have been killed between saving a round and sending it, or the sink
was off, or is new. Rounds that it has already aren't sent again, because repeated rounds have the same
numbers.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mnemos.engines.engine import Runner
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Outcome
from mnemos.runs.directory import Status
from mnemos.runs.execute import Observer, Silent
from mnemos.runs.run import Run
from mnemos.runs.store import overall
from mnemos.track.sink import Channel, Sink, Values, sinks

Spec = str | Mapping[str, Any] | Sink
"""A sink, or its description: `wandb:project=x,mode=offline`, or a mapping with `name` and options."""


def observe(observer: Observer | None, track: Iterable[Spec]) -> Observer:
    """Combine an observer and sinks into one observer.

    `track` describes the sinks. A sink that fails is reported to the observer or, if it is None, as a Python
    warning.
    """
    chosen = check(track)
    warn = observer.warned if observer else _warn
    watching = observer or Silent()
    return _Together(watching, [_Guarded(sink, warn) for sink in chosen]) if chosen else watching


def publish(run: Run, track: Iterable[Spec], warn: Callable[[str], None]) -> None:
    """Send a run's numbers from its directory to sinks, without what they have already.

    `warn` is called with a sentence about a sink that fails.
    """
    status = run.status
    for sink in check(track):
        guarded = _Guarded(sink, warn)
        guarded.started(run, status.rounds)
        guarded.ended(status)


def check(track: Iterable[Spec]) -> list[Sink]:
    """Make the sinks from their descriptions; a ConfigError if one doesn't exist or can't work here."""
    chosen = [_parse(spec) for spec in track]
    names = [type(sink).name for sink in chosen]
    if len(set(names)) < len(names):
        raise ConfigError(f"found {', '.join(names)}; each sink can be named once", "track")
    for sink in chosen:
        try:
            sink.check()
        except ConfigError as error:
            raise error.under(f"track.{type(sink).name}") from None
    return chosen


def _parse(spec: Spec) -> Sink:
    if isinstance(spec, Sink):
        return spec
    options = _words(spec) if isinstance(spec, str) else dict(spec)
    try:
        return sinks.parse(options)
    except ConfigError as error:
        raise error.under(f"track.{options['name']}" if error.path else "track") from None


def _words(spec: str) -> dict[str, Any]:
    """Parse `name:option=value,…` into a mapping; the name can be an import path, `module:Class`."""
    name, _, rest = spec.partition(":")
    if name not in sinks.names():
        attribute, _, after = rest.partition(":")
        if attribute and "=" not in attribute:
            name, rest = f"{name}:{attribute}", after
    options: dict[str, Any] = {"name": name}
    for pair in filter(None, rest.split(",")):
        option, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"found '{spec}'; a sink is written NAME or NAME:OPTION=VALUE,…", "track")
        options[option] = value
    return options


class _Guarded:
    """A sink that is switched off when it fails, with a warning."""

    def __init__(self, sink: Sink, warn: Callable[[str], None]) -> None:
        self._sink = sink
        self._warn = warn
        self._channel: Channel | None = None

    def started(self, run: Run, round: int) -> None:
        with self._guard():
            channel = self._sink.open(run, round)
            if channel.reached < round:
                saved = _saved(run)
                channel.log({done: values for done, values in saved.items() if done > channel.reached})
            self._channel = channel

    def round(self, round: int, values: Values) -> None:
        with self._guard():
            if self._channel and round > self._channel.reached:
                self._channel.log({round: values})

    def ended(self, status: Status) -> None:
        with self._guard():
            if self._channel:
                self._channel.close(status)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # no error of a service may end the run
            self._channel = None
            reason = (str(error).splitlines() or [""])[0]
            reason = re.sub(r"(?<=://)[^/\s@]*@", "", reason)  # an address may have a password in it
            self._warn(
                f"tracking by {type(self._sink).name} is off ({type(error).__name__}: {reason[:300]}); "
                "the run continues, and resuming it with this sink sends what is missing"
            )


class _Together(Silent):
    """An observer, and sinks that are told after it."""

    def __init__(self, observer: Observer, guarded: list[_Guarded]) -> None:
        super().__init__()
        self._observer = observer
        self._guarded = guarded

    def started(self, run: Run, experiment: Experiment, round: int) -> None:
        """Open the sinks."""
        super().started(run, experiment, round)
        self._observer.started(run, experiment, round)
        for sink in self._guarded:
            sink.started(run, round)

    def warned(self, sentence: str) -> None:
        """Tell the observer alone."""
        self._observer.warned(sentence)

    def preparing(self, done: int, total: int, note: str) -> None:
        """Tell the observer alone."""
        self._observer.preparing(done, total, note)

    def doing(self, what: str, share: float | None) -> None:
        """Tell the observer alone."""
        self._observer.doing(what, share)

    def engine(self, runner: Runner) -> None:
        """Tell the observer alone."""
        self._observer.engine(runner)

    def round(self, outcome: Outcome) -> None:
        """Send the sinks the round's numbers of the whole federation."""
        self._observer.round(outcome)
        values = {
            record.name: record.value
            for record in outcome.records
            if (record.client, record.model, record.task, record.cls, record.layer) == (None,) * 5
        }
        for sink in self._guarded:
            sink.round(outcome.round, _finite(values))

    def ended(self, run: Run, status: Status) -> None:
        """Close the sinks."""
        self._observer.ended(run, status)
        for sink in self._guarded:
            sink.ended(status)


def _saved(run: Run) -> dict[int, Values]:
    """The numbers of the whole federation in the run's metrics, by round."""
    rounds: dict[int, dict[str, float]] = {}
    rows = overall(run.metrics)
    for round, name, value in zip(rows["round"], rows["name"], rows["value"], strict=True):
        rounds.setdefault(int(round), {})[name] = value
    return {round: _finite(values) for round, values in rounds.items()}


def _finite(values: Values) -> Values:
    """The values without NaN and infinity, which services treat differently."""
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}


def _warn(sentence: str) -> None:
    warnings.warn(sentence, stacklevel=2)
