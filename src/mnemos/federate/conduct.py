"""The server of a federation: waits for owners, and carries out the experiment with them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mnemos.data.owned import Described, agree
from mnemos.data.sources.elsewhere import Elsewhere, Owner
from mnemos.engines.flower import Flower
from mnemos.errors import ConfigError, DataError, MnemosError, PausedError
from mnemos.experiment import Experiment
from mnemos.federate.enrol import among, check, described, question
from mnemos.federate.grid import GridLink, Refusal
from mnemos.runs.execute import Observer, resume, start
from mnemos.runs.run import Run

Say = Callable[[str], None]

_ANSWER = 120.0
"""Seconds that owners have to read and describe their data."""
_LOOK = 1.0
"""Seconds between looks for owners."""
_MENDED = 30.0
"""Seconds before somebody who couldn't take part is asked again."""


@dataclass(frozen=True)
class Wait:
    """How many owners there are to be, and how long they have to come."""

    owners: int
    seconds: float


def conduct(
    experiment: Experiment, link: GridLink, out: Path, wait: Wait, observer: Observer, say: Say
) -> Run:
    """A run of the experiment, or the rest of one that was broken off."""
    begun = unfinished(experiment, out)
    if begun is not None:
        engine = experiment.engine if isinstance(experiment.engine, Flower) else None
        return go_on(begun, link, wait, observer, say, engine=engine)
    owners = _gather(link, question(experiment), wait, say, check(experiment).classes)

    def ask(body: bytes) -> dict[str, bytes]:
        answers = link.question(body, _ANSWER)
        return {name: answer for name, answer in answers.items() if isinstance(answer, bytes)}

    experiment = among(experiment, owners, ask)
    link.clients, link.run = tuple(sorted(owners)), _memory(experiment)
    assert isinstance(experiment.engine, Flower)
    return start(experiment.model_copy(update={"engine": experiment.engine.over(link)}), out, observer)


def go_on(
    run: Run,
    link: GridLink,
    wait: Wait,
    observer: Observer,
    say: Say,
    rounds: int | None = None,
    engine: Flower | None = None,
) -> Run:
    """The rest of a run, with the owners it has begun with; `engine`: with other options than before."""
    experiment = run.experiment
    data, before = check_run(run)
    say(f"going on with {run.path} after round {run.saved_rounds}")
    link.clients, link.run = tuple(owner.owner for owner in data.owners), _memory(experiment)
    asked = experiment.model_copy(update={"data": data.asked})
    wait = Wait(min(wait.owners, len(data.owners)), wait.seconds)
    members = Members({owner.owner: owner for owner in data.owners}, experiment.min_clients)
    _gather(link, question(asked), wait, say, data.classes, members)
    return resume(run.path, rounds, observer, (engine or before).over(link))


def check_run(run: Run) -> tuple[Elsewhere, Flower]:
    """The data and the engine of a federation's run; refuses any other."""
    data, engine = run.experiment.data, run.experiment.engine
    if not (isinstance(data, Elsewhere) and isinstance(engine, Flower)):
        raise ConfigError(f"{run.path}: it is no federation's run; 'mnemos resume' goes on with it")
    return data, engine


def unfinished(experiment: Experiment, out: Path) -> Run | None:
    """A federation's run of this experiment that was broken off."""
    for file in sorted(out.glob("*/experiment.yaml")):
        run = Run.at(file.parent)
        try:
            known = run.experiment
        except MnemosError:
            continue  # damaged: not ours to judge
        if not isinstance(known.data, Elsewhere) or run.ended:
            continue
        if known.data.reading != check(experiment):
            continue
        if known.model_copy(update={"data": experiment.data, "engine": experiment.engine}) == experiment:
            return run
    return None


@dataclass(frozen=True)
class Members:
    """Those that a run has begun with, and how many of them have to be there for it to go on."""

    owners: Mapping[str, Owner]
    fewest: int


def _gather(
    link: GridLink,
    body: bytes,
    wait: Wait,
    say: Say,
    classes: tuple[str, ...] | None,
    members: Members | None = None,
) -> dict[str, Described]:
    """What so many owners say of their data; of a run that has begun, enough of its members will do."""
    told: dict[str, Described] = {}
    found: dict[str, Described] = {}
    wrong: dict[str, str] = {}
    again: dict[str, float] = {}
    """When to ask somebody once more: what is wrong with its data may have been mended."""
    end = time.monotonic() + wait.seconds
    while len(found) < wait.owners:
        but = {name for name in (*told, *wrong) if name in found or time.monotonic() < again[name]}
        for name, answer in link.question(body, _ANSWER, but).items():
            again[name] = time.monotonic() + _MENDED
            told.pop(name, None)
            try:
                if isinstance(answer, bytes):
                    told[name] = described(name, answer)
                    if members is not None:
                        _check_same(name, told[name], members.owners.get(name))
                elif isinstance(answer, Refusal):  # anything else may be better the next time
                    raise DataError(f"{name} can't take part: {answer}")
            except DataError as error:
                told.pop(name, None)
                _note(wrong, name, str(error), say)
        before, found = found, {}
        for name, one in _most_alike_first(told).items():
            try:
                agree({**found, name: one}, classes)
            except DataError as error:
                _note(wrong, name, str(error), say)
            else:
                found[name] = one
                wrong.pop(name, None)
                if name not in before:
                    say(f"{name} has joined: {one.train + one.test} samples")
        if len(found) < wait.owners and time.monotonic() > end:
            if members is not None and len(found) >= members.fewest:
                say(f"going on without {_listed(members.owners.keys() - found.keys())}, who may come later")
                return found
            here = f" ({_listed(found)})" if found else ""
            reasons = "".join(f"{sentence}; " for sentence in wrong.values())
            raise PausedError(
                f"{len(found)} of {wait.owners} owners have come within {wait.seconds:g} s{here}; {reasons}"
                "they can join before the server is started again"
            )
        if len(found) < wait.owners:
            time.sleep(_LOOK)
    return found


def _note(wrong: dict[str, str], name: str, sentence: str, say: Say) -> None:
    """Say what is wrong with somebody, once."""
    if wrong.get(name) != sentence:
        say(sentence)
    wrong[name] = sentence


def _most_alike_first(owners: Mapping[str, Described]) -> dict[str, Described]:
    """Owners whose samples have the same form as most others' come first: one who errs doesn't set it."""
    alike = Counter((one.shape, one.kind) for one in owners.values())
    return dict(sorted(owners.items(), key=lambda item: -alike[item[1].shape, item[1].kind]))


def _check_same(name: str, now: Described, then: Owner | None) -> None:
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
    """What owners remember by: the same for a run that is resumed, or made longer."""
    return experiment.model_copy(update={"rounds": 1}).hash()
