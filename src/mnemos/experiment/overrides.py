"""Settings from YAML files, and overrides such as `local.lr=0.05`."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from mnemos.common.options import Defaults, NestedField, Options, Part, nested_fields
from mnemos.errors import ConfigError


class _NotPlainError(yaml.YAMLError):
    """Valid YAML that holds something other than numbers, text, lists and mappings."""


def read_yaml(path: Path) -> dict[str, Any]:
    """A mapping from a YAML file."""
    try:
        value = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: can't be read ({error.strerror or error})") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a text file ({error})") from None
    except ValueError as error:  # such as a null byte in the path
        raise ConfigError(f"{path}: not a path ({error})") from None
    except _NotPlainError as error:
        raise ConfigError(f"{path}: not plain data ({error})") from None
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" in line {where.line + 1}" if where else ""
        reason = str(getattr(error, "problem", error)).splitlines()[0]
        raise ConfigError(f"{path}: not valid YAML{line} ({reason})") from None
    if not isinstance(value, dict):
        found = "nothing" if value is None else f"a {type(value).__name__}"
        raise ConfigError(f"{path}: found {found}; expected a mapping of fields")
    return value


def parse_yaml(text: str) -> Any:
    """The value of a YAML text, in which 1e-4 is a number; a `YAMLError` if it isn't plain data."""
    return copy.deepcopy(_parsed(text))


@lru_cache(256)
def _parsed(text: str) -> Any:
    """The value, which must not be changed: it is kept, as recipes name the same files again and again."""
    try:
        value = yaml.load(text, _Loader)  # nosec B506 # a SafeLoader
        json.dumps(value, default=str)
    except (TypeError, ValueError) as error:  # dates as keys, numbers of thousands of digits
        raise _NotPlainError(str(error)) from None
    return value


def dump_yaml(value: Any) -> str:
    """YAML that `parse_yaml` reads back as the same value."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, default_flow_style=None)


def inline_yaml(value: Any) -> str:
    """A value as YAML in one line."""
    return _inline_text(value) if type(value) is str else _inline(value)


@lru_cache(4096)
def _inline_text(text: str) -> str:
    """Text in one line: mostly names, which are the same again and again."""
    return _inline(text)


def _inline(value: Any) -> str:
    text = yaml.dump(
        [value], Dumper=_Inline, default_flow_style=True, width=math.inf, allow_unicode=True, sort_keys=False
    )
    return text.removeprefix("[").removesuffix("]\n")


def parse_overrides(words: Iterable[str]) -> dict[str, Any]:
    """A mapping from dotted names to values, from words such as `local.lr=0.05`."""
    changes: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not all(name.split(".")):
            raise ConfigError(f"found '{word}'; an override is written field=value, such as local.lr=0.05")
        try:
            changes[name] = parse_yaml(value)
        except yaml.YAMLError:
            raise ConfigError(f"'{value}' is not a valid value", name) from None
    return changes


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a nested mapping by their dotted names."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def merge(base: Mapping[str, Any], changes: Mapping[str, Any], schema: type[Options]) -> dict[str, Any]:
    """A nested mapping with dotted changes applied; `schema` is the class that the mapping describes.

    A change sets the field that it names, and no other: `method.server.lr=0.5`, or the same as a mapping
    without a name, `method={server: {lr: 0.5}}`. A name alone, or a mapping with one, is a whole part: it
    replaces the part that was there. Deeper changes apply on top, in any order: `partition.clients=20
    partition=iid` means both.

    When another part is named (`partition.name=iid`), it keeps the options that both parts have (`clients`)
    and that differ from the old part's defaults: a file that spells out `correction: none` of FedAvg must not
    remove SCAFFOLD's correction. Options that the new part doesn't have (`alpha`) are dropped, unless they
    are among the changes. The same holds for the options of its own parts: from FedAvgM with
    `server.lr: 0.5`, written out or not, another method takes over that rate, if its server has one, and not
    FedAvgM's momentum.
    """
    result: dict[str, Any] = plain(dict(base))
    tree = _Change("")
    for name, value in changes.items():
        node, steps = tree, name.split(".")
        if len(steps) > _DEEPEST:
            raise ConfigError(f"found a name of {len(steps)} fields in each other; allowed: {_DEEPEST}")
        for step in steps:
            node = node.inner.setdefault(step, _Change(name))
        node.name, node.values = name, [plain(value)]
    _apply(result, tree.inner, Defaults(schema))
    return result


def plain(value: Any) -> Any:
    """A copy of settings as plain data, in which parts are mappings."""
    return json.loads(json.dumps(value, default=_as_data))


def _as_data(value: Any) -> Any:
    if isinstance(value, Part):
        return value.dump()
    return value.model_dump(mode="json") if isinstance(value, Options) else str(value)


@dataclass
class _Change:
    """The changes of a field and of the fields inside it."""

    name: str
    """The dotted name that the user gave."""
    values: list[Any] = field(default_factory=list)
    """New values of the field; the last one overrides the others."""
    inner: dict[str, _Change] = field(default_factory=dict)
    """Changes of the fields inside it, by name."""


def _apply(settings: dict[str, Any], changes: dict[str, _Change], defaults: Defaults | None) -> None:
    """Change settings in place; `defaults` are those of the part or group that they describe, if known."""
    for name, change in changes.items():
        nested = nested_fields(defaults.kind).get(name) if defaults else None
        inner = dict(change.inner)
        options = [value for value in change.values if _names_options(value, nested)]
        whole = [value for value in change.values if not _names_options(value, nested)]
        if whole:
            settings[name] = whole[-1]
        for value in reversed(options):
            for option, setting in value.items():
                deeper = inner.get(option, _Change(f"{change.name}.{option}"))
                inner[option] = replace(deeper, values=[setting, *deeper.values])
        if inner or options:
            _apply_inside(settings, name, replace(change, inner=inner), defaults)


def _names_options(value: Any, nested: NestedField | None) -> bool:
    """Whether a value sets options of the part or group that is there, and doesn't replace it."""
    if nested is None or nested.many or not isinstance(value, dict):
        return False
    return nested.choices is None or not ("name" in value or nested.choices.reads(value))


def _apply_inside(settings: dict[str, Any], name: str, change: _Change, defaults: Defaults | None) -> None:
    """Change the fields inside a setting; a setting that isn't there yet is created."""
    nested = nested_fields(defaults.kind).get(name) if defaults else None
    node = _opened(settings.get(name), name, change, None if nested else defaults)
    settings[name], changes = node, change.inner
    inside = defaults.inside(name, node) if defaults else None
    part = nested is not None and nested.choices is not None
    if defaults and part and "name" in changes and not changes["name"].inner:
        called = changes.pop("name").values[-1]
        other = defaults.inside(name, {"name": called})
        node = settings[name] = _renamed(node, called, inside, other)
        inside = other
    _apply(node, changes, inside)


def _opened(found: Any, name: str, change: _Change, defaults: Defaults | None) -> dict[str, Any]:
    """A setting as a mapping of its fields; by default the one that `defaults` has, or an empty one."""
    if found is None and defaults is not None:
        found = plain(default) if isinstance(default := defaults.value(name), dict) else None
    if isinstance(found, str):
        found = {"name": found}
    node = {} if found is None else found
    if not isinstance(node, dict):
        raise ConfigError(f"'{name}' has no fields of its own", change.name)
    return node


def _renamed(
    settings: dict[str, Any], called: Any, before: Defaults | None, after: Defaults | None
) -> dict[str, Any]:
    """A part's settings under another part's name, with the options that the other part takes over."""
    if after is not None and (before is None or before.kind is not after.kind):
        kept = _options(settings, after)
        kept = _known(kept if before is None else _chosen(kept, before), after)
        return {"name": called, **kept}
    settings["name"] = called
    return settings


def _chosen(settings: dict[str, Any], defaults: Defaults) -> dict[str, Any]:
    """The settings that differ from their defaults, without the parts of them that don't."""
    chosen: dict[str, Any] = {}
    for name, value in settings.items():
        default, given = defaults.value(name), {"name": value} if isinstance(value, str) else value
        inside = defaults.inside(name, given)
        if inside is None or not isinstance(given, dict):
            if value != plain(default):
                chosen[name] = value
            continue
        options = _chosen(_options(given, inside), inside)
        usual = defaults.inside(name, None)
        if usual is None or usual.kind is not inside.kind:
            chosen[name] = {"name": given["name"], **options}
        elif options or default is None:
            chosen[name] = options
    return chosen


def _known(settings: dict[str, Any], defaults: Defaults) -> dict[str, Any]:
    """The settings that are fields of a part, and of its own parts' settings those that are their fields."""
    known: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in defaults.kind.model_fields:
            continue
        inside = defaults.inside(name, value) if isinstance(value, dict) and "name" not in value else None
        known[name] = value if inside is None else _known(value, inside)
    return known


def _options(settings: dict[str, Any], defaults: Defaults) -> dict[str, Any]:
    """The settings of a part without its name."""
    return {name: value for name, value in settings.items() if name != "name" or not defaults.named}


_DEEPEST = 100
"""How deep lists and mappings may be nested, and how many fields a dotted name may have."""
_MOST = 100_000
"""How many values a file may have, with its aliases expanded."""


def _expanded(node: yaml.Node, known: dict[int, float]) -> float:
    """How many values a node has with its aliases expanded; infinitely many if it contains itself."""
    if id(node) not in known:
        known[id(node)] = math.inf  # until it is known
        inner = node.value if isinstance(node.value, list) else []
        parts = (part for entry in inner for part in (entry if isinstance(entry, tuple) else (entry,)))
        known[id(node)] = 1 + sum(_expanded(part, known) for part in parts)
    return known[id(node)]


_BOOL = "tag:yaml.org,2002:bool"


class _Loader(yaml.SafeLoader):
    """Safe YAML with numbers such as 1e-4 and unique keys, in which only true and false are truth values.

    As in YAML 1.2, `on` and `no` are text.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's own)
        first: [entry for entry in entries if entry[0] != _BOOL]
        for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuse deep nesting, for which PyYAML takes long."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise yaml.composer.ComposerError(None, None, "it is nested too deeply")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Refuse a key that occurs twice, of which PyYAML would silently use the last value."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if (key.tag, key.value) in seen:
                    reason = f"'{key.value[:40]}' is there twice"
                    raise yaml.composer.ComposerError(None, None, reason, key.start_mark)
                seen.add((key.tag, key.value))
        return node

    def get_single_node(self) -> yaml.Node | None:
        """Refuse aliases of aliases that stand for more values than memory holds."""
        node = super().get_single_node()
        if node is not None and _expanded(node, {}) > _MOST:
            raise _NotPlainError(f"its aliases stand for more than {_MOST:,} values")
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Turn Python's own errors into YAML errors: 2020-13-45 looks like a date and isn't one."""
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, ValueError):
            reason = f"'{str(node.value)[:40]}' is not a valid value"
            raise yaml.constructor.ConstructorError(None, None, reason, node.start_mark) from None


class _Dumper(yaml.SafeDumper):
    """Safe YAML that puts text in quotes where `_Loader` would read a number."""


class _Inline(_Dumper):
    """The same in one line, in which line breaks and control characters are escaped."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Text, in double quotes if it has such characters."""
        return self.represent_scalar("tag:yaml.org,2002:str", text, None if text.isprintable() else '"')


_Inline.add_representer(str, _Inline.represent_text)
_Loader.add_implicit_resolver(_BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
for _kind in (_Loader, _Dumper, _Inline):
    _kind.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )
