"""Asking owners to describe their data, and making an experiment from their descriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import Field

from mnemos.common.plain import line, parse_json
from mnemos.common.registry import Options
from mnemos.data.owned import Described, Run, agree
from mnemos.data.partitions.natural import Natural
from mnemos.data.sources.elsewhere import Elsewhere, Owner
from mnemos.data.sources.owners import Owners, ReadingOptions
from mnemos.deployment.holder import Question
from mnemos.engines.flower import Flower
from mnemos.errors import ConfigError, DataError
from mnemos.experiment.compatibility.check import check_experiment
from mnemos.experiment.experiment import Experiment
from mnemos.federation.assembly import flow_of

_O = TypeVar("_O", bound=Options)
_LONGEST = 200
"""The most characters of an error about an answer."""

_NO_OWNERS = Elsewhere(shape=(1,), kind="uint8", classes=("",), mean=(0.0,), std=(1.0,))
"""A placeholder for the owners' data before any owner has joined."""

Ask = Callable[[bytes], Mapping[str, bytes]]
"""A function that asks all owners a question and returns their answers by name."""


class _Tasks(Options):
    """An owner's answer: the tasks of its samples, each named by one of the task's classes."""

    tasks: tuple[Run, ...] = Field(min_length=1)


def check(experiment: Experiment) -> ReadingOptions:
    """Check that the experiment can run in a federation, before any owner has joined.

    Returns how owners are to read their data.
    """
    if not isinstance(experiment.data, Owners):
        raise ConfigError(
            f"found {type(experiment.data).name}; a federation has its owners' data, allowed: owners", "data"
        )
    if not isinstance(experiment.partition, Natural):
        raise ConfigError(
            f"found {type(experiment.partition).name}; each owner is a client, allowed: natural", "partition"
        )
    check_experiment(experiment.model_copy(update={"data": _NO_OWNERS, "engine": _engine(experiment)}))
    return experiment.data.reading


def question(experiment: Experiment) -> bytes:
    """The first question to every owner, which asks for a description of its data."""
    return _bytes(Question(reading=check(experiment)))


def described(owner: str, answer: bytes) -> Described:
    """An owner's description of its data, from its answer; a DataError if it can't be read."""
    values = read_answer(owner, answer)
    values.pop("owner", None)
    return _parsed(owner, Described, values)


def among(experiment: Experiment, owners: Mapping[str, Described], ask: Ask) -> Experiment:
    """The experiment with these owners as clients, in the order of their names.

    If it has tasks, owners are asked which tasks their samples belong to.
    """
    reading, owners = check(experiment), dict(sorted(owners.items()))
    agreement = agree(owners, reading.classes)
    first, some = next(iter(owners.items()))
    length = None if reading.text is None else (reading.text.length,)
    if (some.kind == "int32") != (length is not None) or length not in (None, some.shape):
        wanted = "numbers" if length is None else f"texts of {length[0]} words"
        found = f"samples of shape {list(some.shape)} ({some.kind})"
        raise DataError(f"{first} has {found}, and the experiment is for {wanted}")
    members = tuple(
        Owner(
            owner=name,
            train=description.train,
            test=description.test,
            counts=_counts(description, agreement.classes),
        )
        for name, description in owners.items()
    )
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
    """An owner's answer as a mapping; a DataError if it can't be read."""
    try:
        values = parse_json(answer)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise DataError(f"{owner} has answered something that can't be read")
    return values


def _counts(description: Described, classes: tuple[str, ...]) -> tuple[Run, ...]:
    """(class, training samples) of an owner by the common classes, without those that it has none of."""
    known = dict(zip(description.classes, description.counts, strict=False))
    return tuple((label, known[name]) for label, name in enumerate(classes) if known.get(name))


def _engine(experiment: Experiment) -> Flower:
    return experiment.engine if isinstance(experiment.engine, Flower) else Flower()


def _told(owner: Owner, answer: bytes | None, classes: int) -> Owner:
    """The owner with the tasks of its samples, from its answer."""
    if answer is None:
        raise DataError(f"{owner.owner} hasn't described its tasks")
    found = _parsed(owner.owner, _Tasks, read_answer(owner.owner, answer)).tasks
    if sum(count for _, count in found) != owner.train:
        raise DataError(f"{owner.owner} has {owner.train} training samples, and says tasks of others")
    if max(label for label, _ in found) >= classes:
        raise DataError(f"{owner.owner} names tasks of classes that don't exist: there are {classes}")
    return owner.model_copy(update={"tasks": found})


def _bytes(asked: Question) -> bytes:
    return asked.model_dump_json().encode()


def _parsed(owner: str, kind: type[_O], values: dict[str, Any]) -> _O:
    try:
        return kind.parse(values)
    except ConfigError as error:
        raise DataError(f"{owner} describes its data wrongly: {line(str(error), _LONGEST)}") from None
