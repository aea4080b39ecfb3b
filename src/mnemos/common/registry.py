"""Where parts are found by name.

A *part* is one choice in an experiment (a partition, a model, a method, …): an immutable, validated set
of options together with the behaviour they configure. A *registry* knows all parts of one kind by name,
so a new one is a new file and no edit: the modules of the registry's package are imported when a name is
first looked up. A part outside Mnemos is named by import path, `package.module:Class`, or has a name that an
installed package declares for it (see `plugins`).
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import types
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from mnemos.common.imports import import_path, is_shown, note
from mnemos.common.options import Choices, Options, Part
from mnemos.common.plugins import load, plugins
from mnemos.errors import ConfigError, allowed, did_you_mean

__all__ = ["Options", "Part", "Registry"]

P = TypeVar("P", bound=Part)

_REGISTERED = re.compile(r'\.register\(\s*"([^"]+)"')
"""The name of a part in the decorator that registers it."""


class Registry(Choices, Generic[P]):
    """All parts of one kind, by name; also the pydantic type of a field that holds one of them."""

    base: type[P]

    def __init__(self, kind: str, base: type[P], package: str, plural: str = "") -> None:
        """`kind` is what errors call such a part; `package` is where the modules are that register them.

        `plural` is what lists of them are called, if that isn't the kind with an s.
        """
        self.kind = kind
        self.plural = plural or f"{kind}s".replace(" ", "-")
        self.base = base
        self.package = package
        self._parts: dict[str, type[P]] = {}
        self._shown: dict[str, type[P]] = {}
        self._imported = False
        self._looked_for: set[str] = set()

    def register(self, name: str) -> Callable[[type[P]], type[P]]:
        """Class decorator that makes a part known under a name."""

        def add(part: type[P]) -> type[P]:
            known = self._parts.get(name, part)
            if (known.__module__, known.__qualname__) != (part.__module__, part.__qualname__):
                raise ValueError(f"{self.kind} '{name}' is already registered")
            part.name = name
            self._parts[name] = part
            return part

        return add

    def names(self) -> list[str]:
        """The names of all parts, those of plug-ins among them, sorted."""
        self._import_all()
        return sorted({*self._parts, *plugins(self.plural)})

    def __iter__(self) -> Iterator[type[P]]:
        """The registered parts, in the order of their names; plug-ins aren't imported for that."""
        self._import_all()
        return (self._parts[name] for name in sorted(self._parts))

    def __getitem__(self, name: str) -> type[P]:
        self._import(name)
        if name in self._parts:
            return self._parts[name]
        if name and is_shown(name):
            return self._show(name)
        if name in plugins(self.plural):
            return self._plug_in(name)
        if ":" in name:
            return self._by_path(name)
        names = self.names()
        raise ConfigError(f"there is no {self.kind} '{name}'; {did_you_mean(name, names)}{allowed(names)}")

    def find(self, name: object) -> type[P] | None:
        """The part of a name, or None where `[name]` raises an error."""
        if isinstance(name, type) and issubclass(name, self.base):
            return name
        try:
            return self[name] if isinstance(name, str) else None
        except ConfigError:
            return None

    def reads(self, value: object) -> bool:
        """False: in most registries, a mapping without `name` sets options of the default part."""
        return False

    def parse(self, value: object) -> P:
        """A part from its name, from a mapping with `name` and options, or from a part."""
        if isinstance(value, self.base):
            return value
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, dict):
            raise ConfigError(f"found {value!r}; it takes a name or a mapping with 'name' and options")
        options = dict(value)
        name = options.pop("name", None)
        if isinstance(name, type) and issubclass(name, self.base):  # a default, completed
            return name.parse(options)
        if not isinstance(name, str):
            problem = "'name' is missing" if name is None else f"found the name {name!r}"
            raise ConfigError(f"{problem}; {allowed(self.names())}")
        if ":" in name:
            note(name, options)
        return self[name].parse(options)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: object) -> P:
            try:
                return self.parse(value)
            except ConfigError as error:
                # An error of pydantic's own, so that `explain` knows all steps to the field.
                raise PydanticCustomError(
                    "part", "{sentence}", {"sentence": error.message, "path": error.path}
                ) from None

        return core_schema.no_info_plain_validator_function(
            validate,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda part: part.dump() if isinstance(part, Part) else part  # `_Shown` may hold plain data
            ),
        )

    def _import(self, name: str) -> None:
        """Import what may register a part of this name: a run needs a dozen parts of a hundred."""
        if not self._imported and name not in self._looked_for:
            self._looked_for.add(name)
            for module in _registering(self.package).get(name, ()):
                importlib.import_module(module)
            if name not in self._parts:
                self._import_all()

    def _import_all(self) -> None:
        if not self._imported:
            self._imported = True
            package = importlib.import_module(self.package)
            for module in pkgutil.walk_packages(getattr(package, "__path__", []), f"{self.package}."):
                importlib.import_module(module.name)

    def _by_path(self, path: str) -> type[P]:
        part = self._checked(import_path(path, self.kind), path)
        # Unless it is registered or a plug-in, its path is its name.
        if not part.__module__.startswith(self.package) and ":" in part.name:
            part.name = path
        return part

    def _plug_in(self, name: str) -> type[P]:
        """The part that an installed package offers under a name."""
        part = self._checked(load(self.kind, name, plugins(self.plural)[name]), name)
        part.name = name
        return part

    def _checked(self, part: Any, called: str) -> type[P]:
        if not (isinstance(part, type) and issubclass(part, self.base)):
            raise ConfigError(f"'{called}' is not a {self.base.__name__}")
        if inspect.isabstract(part):
            raise ConfigError(f"'{called}' is abstract; name a class that fills it in")
        return part

    def _show(self, name: str) -> type[P]:
        """A stand-in for the part of this name: it takes any options, can be shown, and can't run."""
        if name not in self._shown:
            self._shown[name] = _shown(self.base, self.kind, name)
        return self._shown[name]


@cache
def _registering(package: str) -> dict[str, list[str]]:
    """Of each name that the modules of a package register in their text: these modules.

    A name that is registered in another way, or a package whose text isn't there, is not among them.
    """
    found: dict[str, list[str]] = {}
    for folder in map(Path, getattr(importlib.import_module(package), "__path__", [])):
        for path in sorted(folder.rglob("*.py")):
            steps = path.relative_to(folder).with_suffix("").parts
            module = ".".join([package, *(steps[:-1] if steps[-1] == "__init__" else steps)])
            for name in dict.fromkeys(_REGISTERED.findall(path.read_text(encoding="utf-8"))):
                found.setdefault(name, []).append(module)
    return found


class _Shown:
    """The behaviour of stand-ins: parts whose class isn't imported."""

    @classmethod
    def parse(cls: Any, options: dict[str, Any]) -> Any:
        """A stand-in with any options: the class may have other fields than its base, and other values."""
        json.dumps(options, ensure_ascii=False).encode()  # raises an error for text that isn't Unicode
        try:
            return cls.model_validate(options)
        except ValidationError:
            return cls.model_construct(**{key: options[key] for key in options if not key.startswith("_")})

    def dump(self: Any) -> dict[str, Any]:
        """The options that were given, and the defaults of its base class."""
        unknown = {name for name in type(self).required if name not in self.model_fields_set}
        return {"name": type(self).name, **self.model_dump(mode="json", exclude=unknown, warnings=False)}


def _shown(base: type[P], kind: str, name: str) -> type[P]:
    """The class of a stand-in: a subclass of `base` whose abstract methods raise an error."""

    def refuse(*_arguments: Any, **_options: Any) -> Any:
        raise ConfigError(f"the {kind} '{name}' is not a part of Mnemos, and was not imported")

    required = {field: info for field, info in base.model_fields.items() if info.is_required()}
    members: dict[str, Any] = dict.fromkeys(base.__abstractmethods__, refuse)
    # The part's class may have defaults where its base class has none; they aren't known here.
    members |= dict.fromkeys(required, None)
    kinds = {field: Annotated[info.annotation, *info.metadata] for field, info in required.items()}
    members |= {"__module__": __name__, "__annotations__": kinds, "model_config": ConfigDict(extra="allow")}
    part: Any = types.new_class("Shown", (_Shown, base), exec_body=lambda body: body.update(members))
    part.name, part.imported, part.required = name, False, frozenset(required)
    shown: type[P] = part
    return shown
