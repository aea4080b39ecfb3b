"""Options with defaults: what a part or a group of options is where the user sets nothing.

`Options` are validated, immutable fields; a `Part` is options with a name, one choice in an experiment. A
field may hold options of its own: another part, a group of options, or a list of either (`NestedField`).
Setting one field of such a value leaves its other fields at the defaults that the field's owner declares.
"""

from __future__ import annotations

import types
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, NamedTuple, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError, PydanticSerializationError, PydanticUndefined

from mnemos.common.explain import explain
from mnemos.common.plugins import name_of
from mnemos.errors import ConfigError


class Options(BaseModel):
    """Immutable options; unknown fields are forbidden and errors are one sentence."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    guesses: ClassVar[Mapping[str, str]] = {}
    """Names that are likely to be tried in a wrong place, and the dotted names of the right fields."""

    @model_validator(mode="before")
    @classmethod
    def _keep_defaults(cls, values: Any) -> Any:
        """Options that a mapping leaves out keep their defaults: `{lr: 0.5}` changes the rate alone.

        That holds at any depth, and for the part that a field has by default, whether the mapping names it
        or not (`partition: {clients: 20}`). Another part begins with its own defaults.
        """
        if not isinstance(values, dict):
            return values
        defaults, fields = Defaults(cls), nested_fields(cls)
        return {
            field: completed(value, fields[field], defaults.value(field)) if field in fields else value
            for field, value in values.items()
        }

    @field_validator("*", mode="before")
    @classmethod
    def _numbers_are_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true and false for a number, which pydantic takes for 1 and 0, and integers over 64 bits."""
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
        except UnicodeEncodeError:  # a lone surrogate, or a byte that the shell couldn't decode
            raise ConfigError("found text that is not Unicode") from None

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """The options as plain data."""
        try:
            return super().model_dump(**options)
        except PydanticSerializationError as error:
            # Pydantic reports a Ctrl-C during a part's `dump` as an error of that function.
            if isinstance(error.__cause__, KeyboardInterrupt):
                raise error.__cause__ from None
            raise


def _kinds(annotation: Any) -> set[Any]:
    """All types that occur in a field's annotation."""
    return {annotation}.union(*map(_kinds, get_args(annotation)))


class Part(Options):
    """One named choice in an experiment."""

    name: ClassVar[str] = ""
    """The name that a registry finds it by: the registered one, or its import path."""
    imported: ClassVar[bool] = True
    """False for a part whose class wasn't imported: its name and options can be shown, and it can't run."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Name a class by its import path, or by its plug-in's name, until it is registered under another."""
        super().__pydantic_init_subclass__(**options)
        # The name of its parent, which it would inherit, finds another class.
        if "name" not in vars(cls):
            path = f"{cls.__module__}:{cls.__qualname__}"
            own = cls.__module__.partition(".")[0] == "mnemos"
            cls.name = path if own else name_of(path) or path

    @classmethod
    def declares(cls, flag: str) -> bool:
        """Whether the class itself sets a flag: what privacy depends on isn't inherited.

        A subclass may do something else than its parent, so it has to make the promise itself.
        """
        return bool(vars(cls).get(flag, False))

    def dump(self) -> dict[str, Any]:
        """The part as plain data, `name` first: what an experiment file holds."""
        return {"name": self.name, **self.model_dump(mode="json")}


class Choices(ABC):
    """The parts that a field can hold: what the rules for defaults need to know of a registry."""

    base: type[Part]
    """The class that all of them inherit from."""

    @abstractmethod
    def find(self, name: object) -> type[Part] | None:
        """The part of a name, or None if there is none."""

    @abstractmethod
    def reads(self, value: object) -> bool:
        """Whether a value has a meaning of its own here, although it has no `name`.

        Otherwise a mapping without a name sets options of the default part.
        """

    @abstractmethod
    def parse(self, value: object) -> Part:
        """A part from its name, from a mapping with `name` and options, or from a part."""


class NestedField(NamedTuple):
    """What a field holds that has options of its own: a part, or a group of options."""

    kind: type[Options]
    """The class of the group, or the base class of the parts."""
    choices: Choices | None = None
    """The parts that it can hold; None for a group."""
    many: bool = False
    """Whether the field holds a list of them."""


@cache
def nested_fields(owner: type[Options]) -> dict[str, NestedField]:
    """The fields of a class that hold parts or groups of options, by name."""
    found = {name: _nested(info.annotation, info.metadata) for name, info in owner.model_fields.items()}
    return {name: nested for name, nested in found.items() if nested is not None}


def _nested(annotation: Any, metadata: Iterable[Any] = ()) -> NestedField | None:
    choices = next((entry for entry in metadata if isinstance(entry, Choices)), None)
    if choices is not None:
        return NestedField(choices.base, choices)
    if isinstance(annotation, type) and issubclass(annotation, Options):
        return NestedField(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _nested(arguments[0], arguments[1:])
    inner = [nested for nested in map(_nested, arguments) if nested is not None]
    if origin in (Union, types.UnionType) and len(inner) == 1:
        return inner[0]
    if origin in (tuple, list) and len(inner) == 1 and not inner[0].many:
        return inner[0]._replace(many=True)
    return None


@dataclass(frozen=True)
class Defaults:
    """The defaults of a part or a group of options."""

    kind: type[Options]
    default: Options | None = None
    """The value that its owner declares as the field's default; None: the defaults are the class's own."""

    @property
    def named(self) -> bool:
        """Whether it is a part: a group of options has no name."""
        return issubclass(self.kind, Part)

    def value(self, field: str) -> Any:
        """A field's default; `PydanticUndefined` if there is none."""
        if self.default is not None:
            return getattr(self.default, field, PydanticUndefined)
        info = self.kind.model_fields.get(field)
        if info is None or info.default_factory_takes_validated_data:
            return PydanticUndefined
        default, nested = info.default, nested_fields(self.kind).get(field)
        if info.default_factory is not None:
            default = info.get_default(call_default_factory=True, validated_data={})
        if isinstance(default, dict) and nested is not None:  # pydantic validates it later
            with suppress(ConfigError):
                return nested.choices.parse(default) if nested.choices else nested.kind.parse(default)
        return default

    def inside(self, field: str, given: object) -> Defaults | None:
        """The defaults of the part or group that a field holds; None if the field holds neither.

        `given` is what the user has set there: a name, a mapping, or None. A name chooses the part.
        """
        nested, default = nested_fields(self.kind).get(field), self.value(field)
        if nested is None or nested.many:
            return None
        if nested.choices is None:
            return Defaults(nested.kind, default if isinstance(default, nested.kind) else None)
        if nested.choices.reads(given):
            return None
        name = given.get("name") if isinstance(given, dict) else given
        own = type(default) if isinstance(default, Part) else nested.choices.find(default)
        kind = own if name is None else nested.choices.find(name)
        if kind is None:
            return None
        return Defaults(kind, default if kind is type(default) else None)


def completed(value: Any, nested: NestedField, default: Any) -> Any:
    """The value that is given for a field, with options that it leaves out taken from the field's default."""
    if nested.many:
        if not isinstance(value, list | tuple) or not isinstance(default, list | tuple):
            return value
        return [_completed_entry(entry, nested, default) for entry in value]
    if nested.choices is not None:
        return _completed_part(value, nested.choices, default)
    if not isinstance(value, dict) or not isinstance(default, nested.kind):
        return value
    return _completed_options(value, default)


def _completed_part(value: Any, choices: Choices, default: Any) -> Any:
    """A part's name or mapping, completed if it is the default part; another part is left unchanged.

    As long as the default isn't validated, it is the default part's name.
    """
    if choices.reads(value):
        return value
    if isinstance(default, str):
        return {"name": default, **value} if isinstance(value, dict) and "name" not in value else value
    if isinstance(value, str):
        return default if choices.find(value) is type(default) else value
    if not isinstance(value, dict) or not isinstance(default, choices.base):
        return value
    kind, given = type(default), dict(value)
    name = given.pop("name", kind.name)
    # The default part's own name needs no look-up, which might not be allowed (see `imports`).
    if name != kind.name and choices.find(name) is not kind:
        return value
    return {**_completed_options(given, default), "name": kind}


def _completed_options(given: dict[str, Any], default: Options) -> dict[str, Any]:
    """Options from a mapping, with those that it leaves out taken from the default."""
    options: dict[str, Any] = {name: getattr(default, name) for name in type(default).model_fields}
    fields = nested_fields(type(default))
    for name, option in given.items():
        known = name in fields and name in options
        options[name] = completed(option, fields[name], options[name]) if known else option
    return options


def _completed_entry(entry: Any, nested: NestedField, defaults: Iterable[Any]) -> Any:
    """An entry of a list of parts, completed by the default list's entry of the same name, if any."""
    name = entry.get("name") if isinstance(entry, dict) else entry
    if nested.choices is None or not isinstance(name, str):
        return entry
    same = [default for default in defaults if type(default) is nested.choices.find(name)]
    return completed(entry, nested._replace(many=False), same[0]) if len(same) == 1 else entry
