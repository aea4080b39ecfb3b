"""Options compared with their defaults: which settings differ, and YAML with a comment on each of these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic_core import PydanticUndefined

from mnemos.common.options import Defaults, Options, Part, nested_fields
from mnemos.experiment.overrides import inline_yaml, plain

DEFAULT = "default"
"""The owner of a default that belongs to no part."""


@dataclass(frozen=True)
class Difference:
    """A setting that differs from its default."""

    value: Any
    """The setting, as plain data."""
    of: str
    """The owner of the default: the name of the part that was chosen, or `default`."""
    own: Any = PydanticUndefined
    """The default, as plain data; undefined if there is none."""

    def __str__(self) -> str:
        if self.own is PydanticUndefined:
            return "no default" if self.of == DEFAULT else f"{self.of} has no default"
        return f"{self.of}: {inline_yaml(self.own)}"

    def facts(self) -> dict[str, Any]:
        """The difference as plain data for scripts; `own` is missing if there is no default."""
        own = {} if self.own is PydanticUndefined else {"own": self.own}
        return {"value": self.value, "of": self.of, **own}


class Line(NamedTuple):
    """A line of YAML, with the difference that its comment tells."""

    text: str
    mark: Difference | None = None

    def __str__(self) -> str:
        return f"{self.text}  # {self.mark}" if self.mark else self.text


def differences(options: Options) -> dict[str, Difference]:
    """All settings that differ from the defaults or from a preset's own, by their dotted names."""
    return dict(_differ(options, Defaults(type(options)), DEFAULT, ""))


def marked_yaml(options: Options) -> list[Line]:
    """The options as YAML that can be read back, one setting per line where something differs."""
    return list(_mapping(options.model_dump(mode="json"), differences(options), "", ""))


def _differ(options: Options, defaults: Defaults, of: str, prefix: str) -> Iterator[tuple[str, Difference]]:
    """The settings that differ from the defaults of `of`, by their dotted names below `prefix`."""
    for name in type(options).model_fields:
        value, default, path = getattr(options, name), defaults.value(name), f"{prefix}{name}"
        if isinstance(value, Options) and name in nested_fields(defaults.kind):
            yield from _differ_inside(value, defaults, of, path)
            continue
        if plain(value) != plain(default):
            yield path, Difference(plain(value), of, _data(default))
        if isinstance(value, tuple | list) and name in nested_fields(defaults.kind):
            yield from _differ_listed(value, default, of, path)


def _differ_inside(
    value: Options, defaults: Defaults, of: str, path: str
) -> Iterator[tuple[str, Difference]]:
    """What differs in a part or a group of options."""
    name = path.rpartition(".")[-1]
    default, usual = defaults.value(name), defaults.inside(name, None)
    if default is not None and usual is not None and usual.kind is type(value):
        yield from _differ(value, usual, of, f"{path}.")
    elif isinstance(value, Part):
        called = usual.kind.name if usual and issubclass(usual.kind, Part) else _data(default)
        yield f"{path}.name", Difference(value.name, of, called)
        yield from _differ(value, Defaults(type(value)), value.name, f"{path}.")
    else:
        yield path, Difference(plain(value), of, _data(default))
        yield from _differ(value, Defaults(type(value)), DEFAULT, f"{path}.")


def _differ_listed(value: Any, default: Any, of: str, path: str) -> Iterator[tuple[str, Difference]]:
    """What differs in the entries of a list of parts or groups."""
    for index, entry in enumerate(value):
        if isinstance(entry, Options):
            same = (
                [other for other in default if type(other) is type(entry)] if isinstance(entry, Part) else []
            )
            defaults = Defaults(type(entry), same[0] if len(same) == 1 else None)
            called = entry.name if isinstance(entry, Part) and defaults.default is None else of
            yield from _differ(entry, defaults, called, f"{path}.{index}.")


def _data(default: Any) -> Any:
    return default if default is PydanticUndefined else plain(default)


def _mapping(
    tree: Mapping[str, Any], marks: Mapping[str, Difference], path: str, indent: str
) -> Iterator[Line]:
    for key, value in tree.items():
        here = f"{path}{key}"
        name, mark = f"{indent}{inline_yaml(key)}:", marks.get(here)
        if not _opened(value, marks, here):
            yield Line(f"{name} {inline_yaml(value)}", mark)
        elif isinstance(value, dict):
            yield Line(name, mark)
            yield from _mapping(value, marks, f"{here}.", f"{indent}  ")
        else:
            yield Line(name, mark)
            for index, entry in enumerate(value):
                yield from _entry(entry, marks, f"{here}.{index}", indent)


def _entry(entry: Any, marks: Mapping[str, Difference], path: str, indent: str) -> Iterator[Line]:
    """The lines of a list's entry; the first one has the dash."""
    if not _opened(entry, marks, path) or not isinstance(entry, dict):
        yield Line(f"{indent}- {inline_yaml(entry)}")
        return
    for index, line in enumerate(_mapping(entry, marks, f"{path}.", f"{indent}  ")):
        yield line if index else line._replace(text=f"{indent}- {line.text.lstrip()}")


def _opened(value: Any, marks: Mapping[str, Difference], path: str) -> bool:
    """Whether a value takes lines of its own: something in it is marked, or it is nested."""
    if not isinstance(value, dict | list) or not value:
        return False
    inside = list(value.values()) if isinstance(value, dict) else value
    nested = any(
        isinstance(entry, dict) or (isinstance(value, dict) and isinstance(entry, list)) for entry in inside
    )
    return nested or any(name.startswith(f"{path}.") for name in marks)
