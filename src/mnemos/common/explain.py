"""Pydantic's validation errors as one sentence: which field, what was found, what is allowed."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from mnemos.errors import ConfigError, allowed, did_you_mean

_BOUNDS = (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤"))

_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "tuple": "a list",
    "list": "a list",
    "dict": "a mapping",
    "finite": "a finite number",
}
"""What a field takes, by the first word of pydantic's error type."""


def explain(error: ValidationError, model: type[BaseModel]) -> ConfigError:
    """The first problem of a validation error as a `ConfigError`."""
    # Unknown fields first: a misspelt name is also reported as a missing one.
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    problem = problems[0]
    steps = [str(step) for step in problem["loc"]]
    if problem["type"] == "part" and problem["ctx"]["path"]:
        steps.append(problem["ctx"]["path"])
    path = ".".join(steps)
    return ConfigError(_led(_sentence(problem, model), path, model), path)


def _led(sentence: str, path: str, model: type[BaseModel]) -> str:
    """A sentence about an unknown field, with the field that was meant, if it is one of the guesses.

    Guesses are for `lr` and `method.lr`, not for options of options: `method.server.lr` isn't `local.lr`.
    """
    *groups, name = path.split(".")
    unknown, meant = "unknown field; ", getattr(model, "guesses", {}).get(name)
    if meant is None or len(groups) > 1 or not sentence.startswith(unknown):
        return sentence
    # A guess is surer than a name that looks alike: `loss` isn't `local`.
    rest = re.sub(r"^did you mean '[^']*'\? ", "", sentence.removeprefix(unknown))
    return f"{unknown}did you mean '{meant}'? {rest}"


def _sentence(problem: ErrorDetails, model: type[BaseModel]) -> str:
    owner, field = _locate(problem["loc"], model)
    kind, found = problem["type"], problem["input"]
    if kind == "extra_forbidden":
        names = list(owner.model_fields)
        hint = did_you_mean(str(problem["loc"][-1]), names)
        return f"unknown field; {hint}" + (
            allowed(names) if names else f"{getattr(owner, 'name', 'it')} has no options"
        )
    if kind == "missing":
        return "it has no default and must be given"
    if kind == "value_error":
        return str(problem["msg"]).removeprefix("Value error, ")
    if kind == "part":
        return str(problem["ctx"]["sentence"])
    if kind == "model_type":
        return f"found {found!r}; expected a mapping of fields; {allowed(owner.model_fields)}"
    if kind == "literal_error":
        return f"found {found!r}; allowed: {problem['ctx']['expected']}"
    if kind == "too_short":
        return f"found {found!r}; expected at least {problem['ctx']['min_length']}"
    limits = bounds(field.metadata if field else [SimpleNamespace(**problem.get("ctx", {}))])
    if limits and kind in {"greater_than", "greater_than_equal", "less_than", "less_than_equal"}:
        return f"found {found!r}; allowed: {limits}"
    word, _, how = kind.partition("_")
    if word in _EXPECTED and how in {"type", "parsing", "from_float", "number"}:
        return f"found {found!r}; expected {_EXPECTED[word]}" + (f" {limits}" if limits else "")
    reason = problem["msg"][0].lower() + problem["msg"][1:]
    return f"found {found!r}; {reason}"


def _locate(loc: tuple[int | str, ...], model: type[BaseModel]) -> tuple[type[BaseModel], FieldInfo | None]:
    """The innermost model along a location, and the field the location ends in."""
    owner, field = model, None
    for step in loc:
        # An index into a list is no field; the list's own field gave the model of its entries.
        field = owner.model_fields.get(str(step))
        owner = _model_in(field.annotation if field else None) or owner
    return owner, field


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model in a field's annotation, which may be the model, optional, or a list of it; None if none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def bounds(constraints: list[Any]) -> str:
    """`> 0 and ≤ 1` from a field's constraints; empty if it has none."""
    parts = [
        f"{sign} {_short(getattr(constraint, name))}"
        for name, sign in _BOUNDS
        for constraint in constraints
        if getattr(constraint, name, None) is not None
    ]
    return " and ".join(parts)


def _short(bound: Any) -> str:
    return f"{bound:g}" if isinstance(bound, float) else str(bound)
