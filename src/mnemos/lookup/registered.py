"""What the registries say: their parts and options, read from the classes, which imports PyTorch."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Iterable
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo as PydanticField
from pydantic_core import PydanticUndefined

from mnemos.common.explain import bounds
from mnemos.common.options import Defaults, Options, Part, nested_fields
from mnemos.common.registry import Registry
from mnemos.experiment.overrides import plain
from mnemos.lookup.examples import example
from mnemos.lookup.info import OptionInfo, PartInfo
from mnemos.lookup.kinds import KINDS

_WORDS = {int: "whole number", float: "number", bool: "true or false", str: "text", type(None): "null"}


def registered(kind: str) -> list[PartInfo]:
    """All parts of a kind that are Mnemos's own; programs and plug-ins may have registered others."""
    own = (part for part in KINDS[kind].load() if part.__module__.startswith("mnemos."))
    return [part_info(kind, part) for part in own]


def part_info(kind: str, part: type[Part], origin: str = "mnemos") -> PartInfo:
    """What a class says of itself."""
    line, text = documentation(part)
    found = PartInfo(kind, part.name, line, text, options_of(part), origin=origin)
    return PartInfo(**{**vars(found), "example": example(found)})


def documentation(part: type[Any]) -> tuple[str, str]:
    """(the first sentence of a class's docstring, the rest of it)."""
    text = inspect.cleandoc(part.__doc__ or "")
    first, _, rest = text.partition("\n\n")
    first = " ".join(first.split())
    return first, rest.strip()


def options_of(owner: type[Options]) -> tuple[OptionInfo, ...]:
    """The options of a part or of a group of options."""
    return tuple(_option(owner, name, info) for name, info in owner.model_fields.items())


def _option(owner: type[Options], name: str, info: PydanticField) -> OptionInfo:
    nested = nested_fields(owner).get(name)
    kind = ""
    inner: tuple[OptionInfo, ...] = ()
    if nested is not None and isinstance(nested.choices, Registry):
        kind = nested.choices.plural
    elif nested is not None:
        inner = options_of(nested.kind)
    takes = _takes(info.annotation, info.metadata, kind)
    default = Defaults(owner).value(name)
    return OptionInfo(
        name=name,
        takes=takes,
        description=_description(owner, name),
        default=None if default is PydanticUndefined else _short(default),
        required=info.is_required(),
        kind=kind,
        choices=() if kind else tuple(map(str, _literals(info.annotation))),
        options=inner,
    )


def _short(default: Any) -> Any:
    """A default as plain data; of a part only its name and what differs from its own defaults."""
    if isinstance(default, Part):
        own = Defaults(type(default))
        changed = {
            name: plain(getattr(default, name))
            for name in type(default).model_fields
            if plain(getattr(default, name)) != plain(own.value(name))
        }
        return {"name": type(default).name, **changed} if changed else type(default).name
    if isinstance(default, tuple | list):
        return [_short(entry) for entry in default]
    return None if isinstance(default, Options) else plain(default)


def _takes(annotation: Any, metadata: Iterable[Any] = (), kind: str = "") -> str:
    """The values of a type in words."""
    limits = bounds(list(metadata))
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _takes(arguments[0], [*_constraints(arguments[1:]), *metadata], kind)
    if origin is Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin in (Union, types.UnionType):
        given = [entry for entry in arguments if entry is not type(None)]
        words = [_takes(entry, metadata, kind) for entry in given]
        return " or ".join([*words, *(["null"] if len(given) < len(arguments) else [])])
    if origin in (tuple, list):
        return "list of " + _takes(arguments[0], (), kind)
    if origin is dict:
        return "mapping"
    if kind:
        return KINDS[kind].one if kind in KINDS else kind
    if isinstance(annotation, type) and issubclass(annotation, Options):
        return "group of options"
    word = _WORDS.get(annotation, "text")
    return f"{word} {limits}" if limits and annotation in (int, float) else word


def _constraints(metadata: Iterable[Any]) -> list[Any]:
    """The constraints in an annotation's metadata, those of pydantic's `Field` unpacked."""
    return [
        inner
        for entry in metadata
        for inner in (entry.metadata if isinstance(entry, PydanticField) else [entry])
    ]


def _literals(annotation: Any) -> tuple[Any, ...]:
    """The values of a `Literal` in an annotation; true and false for a truth value."""
    if annotation is bool:
        return ("true", "false")
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if get_origin(annotation) in (Union, types.UnionType, Annotated):
        return tuple(value for entry in get_args(annotation) for value in _literals(entry))
    return ()


def _description(owner: type[Any], name: str) -> str:
    """A field's description: its own, or that of the nearest class which has one."""
    for base in owner.__mro__:
        info = getattr(base, "__pydantic_fields__", {}).get(name)
        if info is not None and info.description:
            return str(info.description)
        if name in _attribute_docs(base):
            return _attribute_docs(base)[name]
    return ""


def _begun(words: str) -> str:
    """A description with a small letter first, as those of fields have; `K` and `CPU` stay as they are."""
    return words[:1].lower() + words[1:] if words[1:2].islower() else words


@cache
def _attribute_docs(owner: type[Any]) -> dict[str, str]:
    """The texts below the fields of a class, by the fields' names."""
    try:
        source = textwrap.dedent(inspect.getsource(owner))
        body = ast.parse(source).body[0]
    except (OSError, TypeError, SyntaxError):  # a class that was made without a file
        return {}
    if not isinstance(body, ast.ClassDef):
        return {}
    found = {}
    for before, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name):
            text = after.value if isinstance(after, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                found[before.target.id] = _begun(" ".join(text.value.split()).removesuffix("."))
    return found
