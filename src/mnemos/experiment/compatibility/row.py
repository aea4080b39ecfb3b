"""Rules about what goes together, written as rows: which field, when, and the sentence that says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from mnemos.common.registry import Part, Registry
from mnemos.errors import ConfigError

P = TypeVar("P", bound=Part)
S = TypeVar("S")
Found = str | bool | tuple[str, ...] | None
"""What a row has found: texts for its sentence, or True; nothing (empty, False or None) if all is well."""


@dataclass(frozen=True)
class Row(Generic[S]):
    """One rule about a subject: an experiment, or a model with its clients and their data."""

    field: str
    """The field that the sentence is about, by its dotted name."""
    when: Callable[[S], Found]
    """Looks for what is wrong; what it returns is put in the places of `{}` in the sentence and the field."""
    sentence: str
    allowed: Callable[[], str] | None = None
    """Finds the names that `{allowed}` in the sentence stands for."""

    def apply(self, subject: S) -> ConfigError | None:
        """The error that says what is wrong; None: nothing is."""
        found = self.when(subject)
        if not found:
            return None
        texts = found if isinstance(found, tuple) else (found,)
        allowed = "" if self.allowed is None else self.allowed()
        return ConfigError(self.sentence.format(*texts, allowed=allowed), self.field.format(*texts))


@dataclass(frozen=True)
class Table(Generic[S]):
    """Rows about one matter, in the order in which they are looked at."""

    about: Callable[[S], bool]
    """Whether the table is about a subject at all."""
    rows: tuple[Row[S], ...]


def always(_subject: object) -> bool:
    """For tables that are about every subject."""
    return True


def errors(tables: Iterable[Table[S]], subject: S) -> Iterator[ConfigError]:
    """What is wrong with a subject, in the order of tables and rows."""
    for table in tables:
        if table.about(subject):
            for row in table.rows:
                if (error := row.apply(subject)) is not None:
                    yield error


def refuse(tables: Iterable[Table[S]], subject: S) -> None:
    """Raise the first error, if there is any."""
    for error in errors(tables, subject):
        raise error


def named(part: Part, wrong: bool) -> str:
    """The name of a part that is wrong; empty, if it isn't."""
    return part.name if wrong else ""


def names(parts: Iterable[Part]) -> str:
    """The names of some parts."""
    return " and ".join(part.name for part in parts)


def first(parts: Iterable[Part]) -> str:
    """The name of the first of some parts; empty, if there are none."""
    return next((part.name for part in parts), "")


def those(registry: Registry[P], fit: Callable[[type[P]], bool]) -> Callable[[], str]:
    """Finds the names of the registered parts that fit."""
    return lambda: ", ".join(kind.name for kind in registry if fit(kind))
