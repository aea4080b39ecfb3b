"""Letting sinks watch a run, beside whoever watches it already.

A run's own metrics are the truth, and sinks follow them: what a sink doesn't have yet when the run starts
or goes on (it was killed between saving a round and sending it, the sink was off, or is new) is sent from
there. What it has already isn't sent again, as a repeated round gives the same numbers.
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
from mnemos.experiment import Experiment
from mnemos.federation import Outcome
from mnemos.runs.execute import Observer, Silent
from mnemos.runs.run import Run, Status
from mnemos.runs.store import overall
from mnemos.track.sink import Channel, Sink, Values, sinks

Spec = str | Mapping[str, Any] | Sink
"""A sink: `wandb:project=x,mode=offline`, or the same as a mapping with `name` and options."""


def observe(observer: Observer | None, track: Iterable[Spec]) -> Observer:
    """An observer and some sinks as one observer; without an observer, a lost sink is a Python warning."""
    chosen = check(track)
    warn = observer.warned if observer else _warn
    watching = observer or Silent()
    return _Together(watching, [_Guarded(sink, warn) for sink in chosen]) if chosen else watching


def publish(run: Run, track: Iterable[Spec], warn: Callable[[str], None]) -> None:
    """Send a run as it is on disk to some sinks; what they have already isn't sent again."""
    status = run.status
    for sink in check(track):
        guarded = _Guarded(sink, warn)
        guarded.started(run, status.rounds)
        guarded.ended(status)


def check(track: Iterable[Spec]) -> list[Sink]:
    """The sinks, or a `ConfigError` for one that doesn't exist or can't work here."""
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
    """`name:option=value,option=value` as a mapping; the name can be an import path, `module:Class`."""
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
    """A sink that is switched off, with one sentence, the first time it fails."""

    def __init__(self, sink: Sink, warn: Callable[[str], None]) -> None:
        self._sink = sink
        self._warn = warn
        self._channel: Channel | None = None

    def started(self, run: Run, round: int) -> None:
        with self._guard():
            channel = self._sink.open(run, round)
            if channel.reached < round:
                channel.log({n: values for n, values in _saved(run).items() if n > channel.reached})
            self._channel = channel

    def round(self, number: int, values: Values) -> None:
        with self._guard():
            if self._channel and number > self._channel.reached:
                self._channel.log({number: values})

    def ended(self, status: Status) -> None:
        with self._guard():
            if self._channel:
                self._channel.close(status)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever a service does, the run must not suffer
            self._channel = None
            reason = (str(error).splitlines() or [""])[0]
            reason = re.sub(r"(?<=://)[^/\s@]*@", "", reason)  # an address may have a password in it
            self._warn(
                f"tracking by {type(self._sink).name} is off ({type(error).__name__}: {reason[:300]}); "
                "the run goes on, and resuming it with this sink sends what is missing"
            )


class _Together(Silent):
    """One observer, and sinks that hear of everything after it."""

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
        """Not for sinks."""
        self._observer.warned(sentence)

    def preparing(self, done: int, total: int, note: str) -> None:
        """Not for sinks."""
        self._observer.preparing(done, total, note)

    def engine(self, runner: Runner) -> None:
        """Not for sinks."""
        self._observer.engine(runner)

    def round(self, outcome: Outcome) -> None:
        """Send what speaks of the whole federation."""
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
    """The rounds in the run's metrics, in their order."""
    rounds: dict[int, dict[str, float]] = {}
    rows = overall(run.metrics)
    for number, name, value in zip(rows["round"], rows["name"], rows["value"], strict=True):
        rounds.setdefault(int(number), {})[name] = value
    return {number: _finite(values) for number, values in rounds.items()}


def _finite(values: Values) -> Values:
    """Services disagree on what isn't a number, so they don't get it."""
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}


def _warn(sentence: str) -> None:
    warnings.warn(sentence, stacklevel=2)
