"""From what owners say of their data to an experiment with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import Field

from mnemos.data.owned import Described, Run, agree
from mnemos.data.partitions.natural import Natural
from mnemos.data.sources.elsewhere import Elsewhere, Owner
from mnemos.data.sources.owners import Owners, Reading
from mnemos.engines.flower import Flower
from mnemos.errors import ConfigError, DataError
from mnemos.experiment import Experiment
from mnemos.federate.holder import Question
from mnemos.federation import check_early, flow_of
from mnemos.plain import line, parse_json
from mnemos.registry import Options

_O = TypeVar("_O", bound=Options)
_LONGEST = 200
"""Characters of what is wrong with an answer."""

_NOBODY = Elsewhere(shape=(1,), kind="uint8", classes=("",), mean=(0.0,), std=(1.0,))
"""What stands for owners' data as long as nobody has joined."""

Ask = Callable[[bytes], Mapping[str, bytes]]
"""Puts one question to all owners: their answers, by name."""


class _Tasks(Options):
    """Which tasks an owner's samples are of, each by one of its classes."""

    tasks: tuple[Run, ...] = Field(min_length=1)


def check(experiment: Experiment) -> Reading:
    """How owners are to read their data, if the experiment is one for them: before anybody has joined."""
    if not isinstance(experiment.data, Owners):
        raise ConfigError(
            f"found {type(experiment.data).name}; a federation has its owners' data, allowed: owners", "data"
        )
    if not isinstance(experiment.partition, Natural):
        raise ConfigError(
            f"found {type(experiment.partition).name}; each owner is a client, allowed: natural", "partition"
        )
    check_early(experiment.model_copy(update={"data": _NOBODY, "engine": _engine(experiment)}))
    return experiment.data.reading


def question(experiment: Experiment) -> bytes:
    """What everybody is asked first: to describe its data."""
    return _bytes(Question(reading=check(experiment)))


def described(owner: str, answer: bytes) -> Described:
    """What an owner says of its data."""
    values = read_answer(owner, answer)
    values.pop("owner", None)
    return _parsed(owner, Described, values)


def among(experiment: Experiment, owners: Mapping[str, Described], ask: Ask) -> Experiment:
    """The experiment with these owners, in the order of their names."""
    reading, owners = check(experiment), dict(sorted(owners.items()))
    agreement = agree(owners, reading.classes)
    some = next(iter(owners.values()))
    members = tuple(Owner(owner=name, train=one.train, test=one.test) for name, one in owners.items())
    known = Elsewhere(
        shape=some.shape,
        kind=some.kind,
        classes=agreement.classes,
        mean=agreement.mean,
        std=agreement.std,
        reading=reading,
        owners=members,
    )
    experiment = experiment.model_copy(update={"data": known, "engine": _engine(experiment)})
    tasks = flow_of(experiment, known.load()).tasks
    if not tasks:
        return experiment
    labels = tuple(tuple(task.tolist()) for task in tasks)
    answers = ask(_bytes(Question(reading=reading, classes=agreement.classes, tasks=labels)))
    told = (_told(owner, answers.get(owner.owner), len(agreement.classes)) for owner in members)
    return experiment.model_copy(update={"data": known.model_copy(update={"owners": tuple(told)})})


def read_answer(owner: str, answer: bytes) -> dict[str, Any]:
    """What an owner has answered to a question."""
    try:
        values = parse_json(answer)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise DataError(f"{owner} has answered something that can't be read")
    return values


def _engine(experiment: Experiment) -> Flower:
    return experiment.engine if isinstance(experiment.engine, Flower) else Flower()


def _told(owner: Owner, answer: bytes | None, classes: int) -> Owner:
    if answer is None:
        raise DataError(f"{owner.owner} has said nothing of its tasks")
    found = _parsed(owner.owner, _Tasks, read_answer(owner.owner, answer)).tasks
    if sum(count for _, count in found) != owner.train:
        raise DataError(f"{owner.owner} has {owner.train} training samples, and says tasks of others")
    if max(label for label, _ in found) >= classes:
        raise DataError(f"{owner.owner} says tasks of classes that there aren't: there are {classes}")
    return owner.model_copy(update={"tasks": found})


def _bytes(asked: Question) -> bytes:
    return asked.model_dump_json().encode()


def _parsed(owner: str, kind: type[_O], values: dict[str, Any]) -> _O:
    try:
        return kind.parse(values)
    except ConfigError as error:
        raise DataError(f"{owner} describes its data wrongly: {line(str(error), _LONGEST)}") from None
