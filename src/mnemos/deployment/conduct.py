"""The server of a federation: it waits for owners, and runs the experiment with them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from mnemos.data.owned import Described, agree
from mnemos.data.sources.elsewhere import Elsewhere, Owner
from mnemos.deployment.enrol import among, check, described, question
from mnemos.deployment.grid import GridLink, Refusal
from mnemos.deployment.journal import Say, warn
from mnemos.deployment.watcher import Watcher
from mnemos.engines.flower import Flower
from mnemos.errors import ConfigError, DataError, MnemosError, PausedError
from mnemos.experiment.experiment import Experiment
from mnemos.runs.execute import Observer, resume, start
from mnemos.runs.run import Run
from mnemos.runs.trust import remember_own

_ANSWER = 120.0
"""Seconds that owners have to read and describe their data."""
_GOODBYE = 30.0
"""Seconds that owners have to hear of the end."""
_LOOK = 1.0
"""Seconds between looks for owners."""
_MENDED = 30.0
"""Seconds before an owner who couldn't take part is asked again."""


@dataclass(frozen=True)
class Wait:
    """How many owners to wait for, and for how many seconds."""

    owners: int
    seconds: float


def conduct(
    experiment: Experiment, link: GridLink, out: Path, wait: Wait, observer: Observer, say: Say
) -> Run:
    """Run the experiment with the owners who join, or resume its run in `out` if that was broken off.

    `say` is called with sentences about owners who join and about what is wrong with their data.
    """
    begun = unfinished(experiment, out)
    if begun is not None:
        remember_own(experiment)
        before = _rejoin(begun, link, wait, say)
        engine = experiment.engine if isinstance(experiment.engine, Flower) else before
        with _farewell(link, observer, engine):
            return resume(begun.path, None, observer, engine.over(link))
    owners = _gather(link, question(experiment), wait, say, check(experiment).classes)

    def ask(body: bytes) -> dict[str, bytes]:
        answers = link.question(body, _ANSWER)
        return {name: answer for name, answer in answers.items() if isinstance(answer, bytes)}

    experiment = among(experiment, owners, ask)
    link.clients, link.run, link.rounds = tuple(sorted(owners)), _memory(experiment), experiment.rounds
    own = experiment.engine
    assert isinstance(own, Flower)
    with _farewell(link, observer, own):
        return start(experiment.model_copy(update={"engine": own.over(link)}), out, observer)


def go_on(
    run: Run, link: GridLink, wait: Wait, observer: Observer, say: Say, rounds: int | None = None
) -> Run:
    """Resume a federation's run with the owners that it has begun with, until round `rounds`."""
    engine = _rejoin(run, link, wait, say)
    link.rounds = rounds or link.rounds
    with _farewell(link, observer, engine):
        return resume(run.path, rounds, observer, engine.over(link))


@contextmanager
def _farewell(link: GridLink, observer: Observer, engine: Flower) -> Iterator[None]:
    """Around a run: tell its owners how it has ended, and give them the model if the engine says so.

    A run that is interrupted ends at once, and owners aren't told.
    """
    try:
        yield
    except MnemosError:
        _tell_end(link, observer, engine)
        raise
    _tell_end(link, observer, engine)


def _tell_end(link: GridLink, observer: Observer, engine: Flower) -> None:
    run = observer.run
    if run is None:
        return
    status = run.status
    shared = engine.share_model and status.status == "finished"
    model = run.file("model.safetensors").read_bytes() if shared else b""
    # The run is saved: owners that can't be told must not make it fail.
    with suppress(MnemosError, httpx.HTTPError, OSError):
        link.tell_end(status.status, status.rounds, model, _GOODBYE)


def _rejoin(run: Run, link: GridLink, wait: Wait, say: Say) -> Flower:
    """Wait for the owners of a run that is resumed; returns the run's engine."""
    experiment = run.load()
    data, engine = check_run(run)
    say(f"continuing {run.path} after round {run.saved_rounds}")
    link.clients, link.run = tuple(owner.owner for owner in data.owners), _memory(experiment)
    link.rounds = experiment.rounds
    asked = experiment.model_copy(update={"data": data.asked})
    wait = Wait(min(wait.owners, len(data.owners)), wait.seconds)
    members = Members({owner.owner: owner for owner in data.owners}, experiment.min_clients)
    _gather(link, question(asked), wait, say, data.classes, members)
    return engine


def check_run(run: Run) -> tuple[Elsewhere, Flower]:
    """The data and the engine of a federation's run; a ConfigError for any other run."""
    data, engine = run.experiment.data, run.experiment.engine
    if not (isinstance(data, Elsewhere) and isinstance(engine, Flower)):
        raise ConfigError(f"{run.path}: it isn't a federation's run; 'mnemos resume' continues it")
    return data, engine


def unfinished(experiment: Experiment, out: Path) -> Run | None:
    """A federation's run of this experiment in `out` that was broken off; None if there is none."""
    for file in sorted(out.glob("*/experiment.yaml")):
        run = Run.at(file.parent)
        try:
            known = run.experiment
        except MnemosError:
            continue  # it is damaged, and may be another experiment's
        if not isinstance(known.data, Elsewhere) or run.ended:
            continue
        if known.data.reading != check(experiment):
            continue
        asked = known.model_copy(update={"data": experiment.data, "engine": experiment.engine})
        if asked.same_as(experiment):
            return run
    return None


@dataclass(frozen=True)
class Members:
    """The owners of a run that is resumed."""

    owners: Mapping[str, Owner]
    fewest: int
    """The least number of them with which the run can go on."""


def _gather(
    link: GridLink,
    body: bytes,
    wait: Wait,
    say: Say,
    classes: tuple[str, ...] | None,
    members: Members | None = None,
) -> dict[str, Described]:
    """Wait for owners, and return the descriptions of their data by name.

    `body` is the question that asks for a description, `classes` are those of the experiment if it names
    them. `members` are the owners of a run that is resumed: if the time is over, `members.fewest` of them are
    enough. Raises PausedError if there are too few.
    """
    gathering = _Gathering(say, classes, members, link.watcher)
    end = time.monotonic() + wait.seconds
    while True:
        gathering.hear(link.question(body, _ANSWER, gathering.settled()))
        found = gathering.agree()
        if len(found) >= wait.owners:
            return found
        if time.monotonic() > end:
            if members is not None and len(found) >= members.fewest:
                say(f"continuing without {_listed(members.owners.keys() - found.keys())}, who may join later")
                return found
            raise gathering.too_few(wait)
        time.sleep(_LOOK)


class _Gathering:
    """The owners who have answered so far: whose data fit together, and what is wrong with the others'."""

    def __init__(
        self, say: Say, classes: tuple[str, ...] | None, members: Members | None, watcher: Watcher
    ) -> None:
        self._say, self._classes, self._members, self._watcher = say, classes, members, watcher
        self._told: dict[str, Described] = {}
        """What owners have said about their data."""
        self._found: dict[str, Described] = {}
        """Those of them whose data fit together."""
        self._wrong: dict[str, str] = {}
        """Why other owners can't take part."""
        self._again: dict[str, float] = {}
        """When to ask an owner again, whose data may have been mended by then."""

    def settled(self) -> set[str]:
        """The owners who needn't be asked now."""
        now = time.monotonic()
        known = (*self._told, *self._wrong)
        return {name for name in known if name in self._found or now < self._again[name]}

    def hear(self, answers: Mapping[str, bytes | str]) -> None:
        """Take in what owners have answered."""
        for name, answer in answers.items():
            self._again[name] = time.monotonic() + _MENDED
            self._told.pop(name, None)
            try:
                if isinstance(answer, bytes):
                    self._told[name] = self._described(name, answer)
                elif isinstance(answer, Refusal):  # other failures may pass, and say nothing about the data
                    raise DataError(f"{name} can't take part: {answer}")
            except DataError as error:
                self._note(name, str(error))

    def agree(self) -> dict[str, Described]:
        """Find the owners whose data fit together, and return what they have said about them."""
        before, self._found = self._found, {}
        for name, description in _most_alike_first(self._told).items():
            try:
                agree({**self._found, name: description}, self._classes)
            except DataError as error:
                self._note(name, str(error))
            else:
                self._found[name] = description
                self._wrong.pop(name, None)
                if name not in before:
                    self._watcher.joined(name)
                    rest = self._watcher.awaited
                    still = f"; still awaited: {', '.join(rest)}" if rest else ""
                    self._say(f"{name} has joined: {description.train + description.test} samples{still}")
        return self._found

    def too_few(self, wait: Wait) -> PausedError:
        """The error for too few owners, which says who has come and what is wrong with others."""
        here = f" ({_listed(self._found)})" if self._found else ""
        awaited = self._watcher.awaited
        missing = f"{_listed(awaited)} haven't joined; " if len(awaited) > 1 else ""
        missing = f"{awaited[0]} hasn't joined; " if len(awaited) == 1 else missing
        reasons = "".join(f"{sentence}; " for sentence in self._wrong.values())
        return PausedError(
            f"{len(self._found)} of {wait.owners} owners have joined within {wait.seconds:g} s{here}; "
            f"{missing}{reasons}they can join before the server is started again"
        )

    def _described(self, name: str, answer: bytes) -> Described:
        """An owner's description of its data; a DataError if a resumed run had other data of it."""
        found = described(name, answer)
        if self._members is not None:
            _check_same(name, found, self._members.owners.get(name))
        return found

    def _note(self, name: str, sentence: str) -> None:
        """Keep why an owner can't take part; say it once."""
        if self._wrong.get(name) != sentence:
            warn(self._say, sentence)
            self._watcher.refused(name, sentence)
        self._wrong[name] = sentence


def _most_alike_first(owners: Mapping[str, Described]) -> dict[str, Described]:
    """The owners, ordered so that those whose samples have the most frequent shape and type come first.

    Others must agree with the first, so an owner with a mistake doesn't decide.
    """
    alike = Counter((description.shape, description.kind) for description in owners.values())
    return dict(sorted(owners.items(), key=lambda item: -alike[item[1].shape, item[1].kind]))


def _check_same(name: str, now: Described, then: Owner | None) -> None:
    """Raise a DataError if an owner has no part in a resumed run, or has other data than it had then."""
    if then is None:
        raise DataError(f"{name} can't take part: the run has begun without")
    if (now.train, now.test) != (then.train, then.test):
        raise DataError(
            f"{name} can't take part: it has {now.train} and {now.test} samples, and had {then.train} and "
            f"{then.test} when the run began"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _memory(experiment: Experiment) -> str:
    """The name under which owners keep client states: the same if a run is resumed or made longer."""
    return experiment.model_copy(update={"rounds": 1}).hash()
