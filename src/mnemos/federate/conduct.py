"""The server of a federation: waits for owners, and carries out the experiment with them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mnemos.data.owned import Described
from mnemos.data.sources.elsewhere import Elsewhere, Owner
from mnemos.engines.flower import Flower
from mnemos.errors import ConfigError, DataError, MnemosError, PausedError
from mnemos.experiment import Experiment
from mnemos.federate.enrol import among, described, question
from mnemos.federate.grid import GridLink, Refusal
from mnemos.runs.execute import Observer, resume, start
from mnemos.runs.run import Run

Say = Callable[[str], None]

_ANSWER = 120.0
"""Seconds that owners have to read and describe their data."""
_LOOK = 1.0
"""Seconds between looks for owners."""


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
        return go_on(begun, link, wait, observer, say)
    owners = _gather(link, question(experiment), wait, say)

    def ask(body: bytes) -> dict[str, bytes]:
        answers = link.question(body, _ANSWER)
        return {name: answer for name, answer in answers.items() if isinstance(answer, bytes)}

    experiment = among(experiment, owners, ask)
    link.clients, link.run = tuple(sorted(owners)), _memory(experiment)
    assert isinstance(experiment.engine, Flower)
    return start(experiment.model_copy(update={"engine": experiment.engine.over(link)}), out, observer)


def go_on(
    run: Run, link: GridLink, wait: Wait, observer: Observer, say: Say, rounds: int | None = None
) -> Run:
    """The rest of a run, with the owners it has begun with."""
    experiment = run.experiment
    data, engine = check_run(run)
    say(f"going on with {run.path} after round {run.saved_rounds}")
    link.clients, link.run = tuple(owner.owner for owner in data.owners), _memory(experiment)
    asked = question(experiment.model_copy(update={"data": data.asked}))
    _gather(link, asked, Wait(min(wait.owners, len(data.owners)), wait.seconds), say, data.owners)
    return resume(run.path, rounds, observer, engine.over(link))


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
        if known.model_copy(update={"data": experiment.data, "engine": experiment.engine}) == experiment:
            return run
    return None


def _gather(
    link: GridLink, body: bytes, wait: Wait, say: Say, members: Sequence[Owner] | None = None
) -> dict[str, Described]:
    """What so many owners say of their data; `members`: of a run that has begun with them."""
    found: dict[str, Described] = {}
    refused: set[str] = set()
    known = None if members is None else {owner.owner: owner for owner in members}
    end = time.monotonic() + wait.seconds
    while len(found) < wait.owners:
        for name, answer in link.question(body, _ANSWER, {*found, *refused}).items():
            try:
                if isinstance(answer, bytes):
                    one = described(name, answer)
                    if known is not None:
                        _check_same(name, one, known.get(name))
                    found[name] = one
                    say(f"{name} has joined: {found[name].train + found[name].test} samples")
                elif isinstance(answer, Refusal):  # anything else may be better the next time
                    raise DataError(f"{name} can't take part: {answer}")
            except DataError as error:
                refused.add(name)
                say(str(error))
        if len(found) < wait.owners and time.monotonic() > end:
            raise PausedError(
                f"{len(found)} of {wait.owners} owners have come within {wait.seconds:g} s"
                f"{_listed(found)}; they can join before the server is started again"
            )
        if len(found) < wait.owners:
            time.sleep(_LOOK)
    return found


def _check_same(name: str, now: Described, then: Owner | None) -> None:
    if then is None:
        raise DataError(f"{name} can't take part: the run has begun without")
    if (now.train, now.test) != (then.train, then.test):
        raise DataError(
            f"{name} can't take part: it has {now.train} and {now.test} samples, and had {then.train} and "
            f"{then.test} when the run began"
        )


def _listed(names: Iterable[str]) -> str:
    text = ", ".join(sorted(names))
    return f" ({text})" if text else ""


def _memory(experiment: Experiment) -> str:
    """What owners remember by: the same for a run that is resumed, or made longer."""
    return experiment.model_copy(update={"rounds": 1}).hash()
