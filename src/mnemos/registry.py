"""Parts and where they are found.

A *part* is one choice in an experiment (a partition, a model, a method, …): an immutable, validated set
of options together with the behaviour they configure. A *registry* knows all parts of one kind by name,
so a new one is a new file and no edit: the modules of the registry's package are imported when a name is
first looked up. A part outside Mnemos is named by import path, `package.module:Class`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, Generic, Self, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, PydanticSerializationError, core_schema

from mnemos.errors import ConfigError, allowed, did_you_mean
from mnemos.explain import explain


class Options(BaseModel):
    """Immutable options; unknown fields are forbidden and errors are one sentence."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _name_defaults(cls, values: Any) -> Any:
        """Options without a name belong to the default part: `partition: {clients: 20}`."""
        if not isinstance(values, dict):
            return values
        named = dict(values)
        for field, info in cls.model_fields.items():
            registry = next((part for part in info.metadata if isinstance(part, Registry)), None)
            if registry is not None and registry.reads(values.get(field)):
                continue
            default = type(info.default).name if isinstance(info.default, Part) else info.default
            value = named.get(field)
            if isinstance(default, str) and isinstance(value, dict) and "name" not in value:
                named[field] = {"name": default, **value}
        return named

    @field_validator("*", mode="before")
    @classmethod
    def _numbers_are_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """Pydantic takes true for 1, and numbers that no machine counts with; nobody means either."""
        given = value if isinstance(value, list | tuple) else [value]
        if any(type(entry) is int and abs(entry) >= 2**64 for entry in given):
            raise ValueError("found a whole number of more than 64 bits")
        if any(isinstance(entry, bool) for entry in given):
            kinds = _kinds(cls.model_fields[info.field_name or ""].annotation)
            if kinds & {int, float} and bool not in kinds:
                raise PydanticCustomError("int_type" if int in kinds else "float_type", "not a number")
        return value

    @classmethod
    def parse(cls, options: dict[str, Any]) -> Self:
        """Validate options, raising a `ConfigError` that names the field."""
        try:
            try:
                return cls.model_validate(options)
            except ValidationError as error:
                raise explain(error, cls) from None
        except UnicodeEncodeError:  # half of a pair of surrogates, or a byte that the shell couldn't decode
            raise ConfigError("found text that is not Unicode") from None

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """The options as plain data."""
        try:
            return super().model_dump(**options)
        except PydanticSerializationError as error:
            # Pydantic takes a Ctrl-C that falls into a part's `dump` for a mistake of that function.
            if isinstance(error.__cause__, KeyboardInterrupt):
                raise error.__cause__ from None
            raise


def _kinds(annotation: Any) -> set[Any]:
    """All types that a field's type is made of."""
    return {annotation}.union(*map(_kinds, get_args(annotation)))


class Part(Options):
    """One named choice in an experiment."""

    name: ClassVar[str] = ""

    def dump(self) -> dict[str, Any]:
        """The part as plain data, `name` first: what an experiment file holds."""
        kind = type(self)
        # A subclass that nobody has registered must not pass for its parent.
        name = vars(kind).get("name") or f"{kind.__module__}:{kind.__qualname__}"
        return {"name": name, **self.model_dump(mode="json")}


P = TypeVar("P", bound=Part)


class Registry(Generic[P]):
    """All parts of one kind, by name; also the pydantic type of a field that holds one of them."""

    def __init__(self, kind: str, base: type[P], package: str) -> None:
        self.kind = kind
        self.base = base
        self.package = package
        self._parts: dict[str, type[P]] = {}
        self._imported = False

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
        """The registered names, sorted."""
        self._import_all()
        return sorted(self._parts)

    def __iter__(self) -> Iterator[type[P]]:
        return (self._parts[name] for name in self.names())

    def __getitem__(self, name: str) -> type[P]:
        self._import_all()
        if name in self._parts:
            return self._parts[name]
        if ":" in name:
            return self._by_path(name)
        hint = did_you_mean(name, self._parts)
        raise ConfigError(f"there is no {self.kind} '{name}'; {hint}{allowed(self._parts)}")

    def reads(self, value: object) -> bool:
        """Whether a mapping without a name means something here, and not the default part's options."""
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
        if not isinstance(name, str):
            problem = "'name' is missing" if name is None else f"found the name {name!r}"
            raise ConfigError(f"{problem}; {allowed(self.names())}")
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
            serialization=core_schema.plain_serializer_function_ser_schema(lambda part: part.dump()),
        )

    def _import_all(self) -> None:
        if not self._imported:
            self._imported = True
            package = importlib.import_module(self.package)
            for module in pkgutil.iter_modules(getattr(package, "__path__", [])):
                importlib.import_module(f"{self.package}.{module.name}")

    def _by_path(self, path: str) -> type[P]:
        part = import_path(path, self.kind)
        if not (isinstance(part, type) and issubclass(part, self.base)):
            raise ConfigError(f"'{path}' is not a {self.base.__name__}")
        if inspect.isabstract(part):
            raise ConfigError(f"'{path}' is abstract; name a class that fills it in")
        if not part.__module__.startswith(self.package):  # it is found by its path alone next time
            part.name = path
        return part


_by_paths_too = ContextVar("by_paths_too", default=True)


@contextmanager
def by_name_alone() -> Iterator[None]:
    """Refuse to import anything by its path in here: somebody else says which parts there are."""
    before = _by_paths_too.set(False)
    try:
        yield
    finally:
        _by_paths_too.reset(before)


def import_path(path: str, kind: str) -> Any:
    """The object named by `package.module:attribute`."""
    if not _by_paths_too.get():
        raise ConfigError(f"the {kind} '{path}' is named by import path, which isn't allowed here")
    module_name, _, attribute = path.partition(":")
    try:
        module: types.ModuleType = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"the {kind} '{path}' can't be imported ({error})") from None
    except Exception as error:  # whatever the user's module does while it is imported
        reason = (str(error) or "no reason given").splitlines()[0]
        raise ConfigError(
            f"the {kind} '{path}' can't be imported ({type(error).__name__}: {reason})"
        ) from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise ConfigError(f"the {kind} '{path}' can't be found: {module_name} has no '{attribute}'") from None
