"""Settings from YAML files and from words such as `local.lr=0.05`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from mnemos.errors import ConfigError
from mnemos.registry import Part, Registry


class _NotPlainError(yaml.YAMLError):
    """YAML that is valid, and more than numbers, text, lists and mappings."""


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
    except ValueError as error:  # what no file can be called
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
    """YAML in which 1e-4 is a number, as everybody means it; a `YAMLError` if it isn't plain data."""
    try:
        value = yaml.load(text, _Loader)  # nosec B506 # a SafeLoader
        json.dumps(value, default=str)
    except (TypeError, ValueError) as error:  # dates as keys, numbers of thousands of digits
        raise _NotPlainError(str(error)) from None
    return value


def dump_yaml(value: Any) -> str:
    """YAML that `parse_yaml` reads back as the same value."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, default_flow_style=None)


def parse_overrides(words: Iterable[str]) -> dict[str, Any]:
    """`local.lr=0.05` and the like as a mapping from dotted names to values."""
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


def merge(base: Mapping[str, Any], changes: Mapping[str, Any], schema: type[BaseModel]) -> dict[str, Any]:
    """A nested mapping with dotted changes, in the order given.

    When another part is named (`partition.name=iid`), it keeps the options that it has in common with the
    old one (`clients`) and that aren't the old one's defaults: a file that spells out `correction: none` of
    FedAvg must not take SCAFFOLD's correction away. Those that it doesn't know (`alpha`) go, unless they
    are among the changes.
    """
    result: dict[str, Any] = _plain(dict(base))
    renamed: list[tuple[list[str], dict[str, Any]]] = []
    # Whole parts first: `partition.clients=20 partition=iid` means both.
    for name, value in sorted(changes.items(), key=lambda item: item[0].count(".")):
        *path, leaf = name.split(".")
        node = _descend(result, path, name)
        if leaf == "name" and path:
            renamed.append((path, _defaults(_part_at(schema, result, path))))
        node[leaf] = _plain(value)
    for path, defaults in renamed:
        part = _part_at(schema, result, path)
        if part is None:
            continue
        node = _descend(result, path, ".".join(path))
        asked = {"name", *(name.split(".")[len(path)] for name in _below(changes, path))}
        for option in set(node) - asked:
            if option not in part.model_fields or node[option] == defaults.get(option, _NEVER):
                del node[option]
    return result


_NEVER = object()


def _defaults(part: type[BaseModel] | None) -> dict[str, Any]:
    """The defaults of a part's options, as plain data."""
    fields = {} if part is None else part.model_fields
    return {
        name: _plain(info.get_default(call_default_factory=True))
        for name, info in fields.items()
        if not info.is_required()
    }


def _plain(value: Any) -> Any:
    """A copy of settings as plain data; parts become mappings."""
    return json.loads(
        json.dumps(value, default=lambda part: part.dump() if isinstance(part, Part) else str(part))
    )


def _below(changes: Mapping[str, Any], path: list[str]) -> list[str]:
    prefix = ".".join(path) + "."
    return [name for name in changes if name.startswith(prefix)]


def _descend(tree: dict[str, Any], path: list[str], name: str) -> dict[str, Any]:
    """The mapping at a path, made where there is none yet; a part given by its name alone becomes one."""
    node = tree
    for step in path:
        inner = node.get(step)
        if inner is None or isinstance(inner, str):
            inner = {} if inner is None else {"name": inner}
        if not isinstance(inner, dict):
            raise ConfigError(f"'{step}' has no fields of its own", name)
        node[step] = inner
        node = inner
    return node


def _part_at(schema: type[BaseModel], tree: dict[str, Any], path: list[str]) -> type[BaseModel] | None:
    """The class of the part that a tree of settings names at a path; None if there is no such part."""
    owner: type[BaseModel] = schema
    node: Any = tree
    for step in path:
        info = owner.model_fields.get(step)
        if info is None:
            return None
        node = node[step]
        registry = next((entry for entry in info.metadata if isinstance(entry, Registry)), None)
        if registry is None:
            inner = info.annotation
            if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
                return None
            owner = inner
            continue
        default = type(info.default).name if isinstance(info.default, Part) else info.default
        try:
            owner = registry[node if isinstance(node, str) else node.get("name", default)]
        except (ConfigError, TypeError, AttributeError):
            return None  # validation will say what is wrong with it
    return owner


_DEEPEST = 100
"""Lists and mappings in each other."""
_MOST = 100_000
"""Values that a file may have, with its aliases spelt out."""


def _spelt_out(node: yaml.Node, known: dict[int, float]) -> float:
    """How many values a node stands for; without end if it is inside itself."""
    if id(node) not in known:
        known[id(node)] = math.inf  # until it is known
        inner = node.value if isinstance(node.value, list) else []
        parts = (part for entry in inner for part in (entry if isinstance(entry, tuple) else (entry,)))
        known[id(node)] = 1 + sum(_spelt_out(part, known) for part in parts)
    return known[id(node)]


_BOOL = "tag:yaml.org,2002:bool"


class _Loader(yaml.SafeLoader):
    """Safe YAML with numbers such as 1e-4, each key once, and no truth but true and false (as of YAML 1.2):
    `on` and `no` are words."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's own)
        first: [entry for entry in entries if entry[0] != _BOOL]
        for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Nobody means hundreds of lists in each other, and PyYAML takes long for them."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise yaml.composer.ComposerError(None, None, "it is nested too deeply")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """PyYAML lets the last of several values of one key win without a word."""
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
        """A few lines of aliases of aliases can stand for more values than there is memory."""
        node = super().get_single_node()
        if node is not None and _spelt_out(node, {}) > _MOST:
            raise _NotPlainError(f"its aliases stand for more than {_MOST:,} values")
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """PyYAML lets Python's own errors through: 2020-13-45 looks like a date and is none."""
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, ValueError):
            reason = f"'{str(node.value)[:40]}' is not a valid value"
            raise yaml.constructor.ConstructorError(None, None, reason, node.start_mark) from None


class _Dumper(yaml.SafeDumper):
    """Safe YAML that puts text in quotes where `_Loader` would read a number."""


_Loader.add_implicit_resolver(_BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
for _side in (_Loader, _Dumper):
    _side.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )
