"""Which parts of Mnemos, and which choices among their options, the experiments of the net use.

Parts are found through `mnemos.Experiment`: a field that holds a part has its registry among its metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from digests_matrix import NOT_COVERED, Row


@dataclass
class Used:
    """What experiments use."""

    parts: set[tuple[str, str]] = field(default_factory=set)
    """(kind, name)"""
    choices: set[tuple[type[BaseModel], str, Any]] = field(default_factory=set)
    """(class, option, value)"""


def used(rows: Iterable[Row]) -> Used:
    """By all rows that the sources at hand can read."""
    import mnemos

    found = Used()
    for row in rows:
        try:
            experiment = mnemos.Experiment.model_validate(row.experiment)
        except Exception:  # a part that these sources don't know
            continue
        _look(experiment, found)
    return found


def parts_left(rows: Iterable[Row]) -> list[str]:
    """`kind name` of every part that no row uses and that isn't left out on purpose."""
    import mnemos

    seen = used(rows).parts
    return [
        f"{kind} {name}"
        for kind, names in registered(mnemos.Experiment).items()
        for name in names
        if (kind, name) not in seen and name not in NOT_COVERED.get(kind, {})
    ]


def choices_left(rows: Iterable[Row]) -> list[str]:
    """`part.option=value` of every choice that no row makes, of parts that some row uses."""
    seen = used(rows).choices
    options = sorted({(kind, option) for kind, option, _ in seen}, key=lambda one: (_title(one[0]), one[1]))
    return [
        f"{_title(kind)}.{option}={value}"
        for kind, option in options
        for value in _values(kind.model_fields[option].annotation)
        if (kind, option, value) not in seen
    ]


def registered(of: type[BaseModel]) -> dict[str, list[str]]:
    """The names of all parts of Mnemos that an experiment can have, by kind: the parts of parts, too."""
    found: dict[str, list[str]] = {}
    waiting: list[type[BaseModel]] = [of]
    visited: set[type[BaseModel]] = set()
    while waiting:
        model = waiting.pop()
        if model in visited:
            continue
        visited.add(model)
        for info in model.model_fields.values():
            for registry in _registries(info):
                own = [part for part in registry if part.__module__.startswith("mnemos.")]
                found[registry.kind] = [part.name for part in own]
                waiting += own
            waiting += [kind for kind in _kinds(info.annotation) if issubclass(kind, BaseModel)]
    return found


def _look(options: BaseModel, found: Used) -> None:
    for name, info in type(options).model_fields.items():
        value = getattr(options, name)
        if _values(info.annotation):
            found.choices.add((type(options), name, value))
        for leaf in _leaves(value):
            for registry in _registries(info):
                found.parts.add((registry.kind, getattr(type(leaf), "name", "")))
            _look(leaf, found)


def _leaves(value: Any) -> Iterator[BaseModel]:
    """The options within a value."""
    if isinstance(value, BaseModel):
        yield value
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _leaves(entry)
    elif isinstance(value, Mapping):
        yield from _leaves(list(value.values()))


def _registries(info: FieldInfo) -> Iterator[Any]:
    """What knows the parts that a field can hold."""

    def within(annotation: Any) -> Iterator[Any]:
        yield from getattr(annotation, "__metadata__", ())
        for inner in get_args(annotation):
            yield from within(inner)

    for entry in (*info.metadata, *within(info.annotation)):
        if hasattr(entry, "kind") and hasattr(entry, "names"):
            yield entry


def _kinds(annotation: Any) -> Iterator[type]:
    """All classes that a type is made of."""
    if isinstance(annotation, type) and not get_args(annotation):
        yield annotation
    for inner in get_args(annotation):
        yield from _kinds(inner)


def _values(annotation: Any) -> tuple[Any, ...]:
    """The values of a type that has few; none of another one."""
    if annotation is bool:
        return (False, True)
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _title(kind: type[BaseModel]) -> str:
    return getattr(kind, "name", "") or kind.__name__
