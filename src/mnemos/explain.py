"""Pydantic's validation errors as one sentence: which field, what was found, what is allowed."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from mnemos.errors import ConfigError, allowed, did_you_mean

_BOUNDS = (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤"))


def explain(error: ValidationError, model: type[BaseModel]) -> ConfigError:
    """The first problem of a validation error as a `ConfigError`."""
    # Unknown fields first: a misspelt name also shows up as a missing one.
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    problem = problems[0]
    path = ".".join(str(step) for step in problem["loc"])
    return ConfigError(_sentence(problem, model), path)


def _sentence(problem: ErrorDetails, model: type[BaseModel]) -> str:
    owner, field = _locate(problem["loc"], model)
    kind, found = problem["type"], problem["input"]
    if kind == "extra_forbidden":
        names = list(owner.model_fields)
        hint = did_you_mean(str(problem["loc"][-1]), names)
        return f"unknown field; {hint}" + (allowed(names) if names else "it has no options")
    if kind == "missing":
        return "it has no default and must be given"
    if kind == "value_error":
        return str(problem["msg"]).removeprefix("Value error, ")
    bounds = _bounds(field) if field else ""
    if bounds and kind in {
        "greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number",
    }:  # fmt: skip
        return f"found {found!r}; allowed: {bounds}"
    reason = problem["msg"][0].lower() + problem["msg"][1:]
    return f"found {found!r}; {reason}"


def _locate(loc: tuple[int | str, ...], model: type[BaseModel]) -> tuple[type[BaseModel], FieldInfo | None]:
    """The innermost model along a location, and the field the location ends in."""
    owner, field = model, None
    for step in loc:
        field = owner.model_fields.get(str(step))
        inner: Any = field.annotation if field else None
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            owner = inner
    return owner, field


def _bounds(field: FieldInfo) -> str:
    """`> 0 and ≤ 1` from a field's constraints."""
    parts = [
        f"{sign} {getattr(constraint, name)}"
        for name, sign in _BOUNDS
        for constraint in field.metadata
        if getattr(constraint, name, None) is not None
    ]
    return " and ".join(parts)
