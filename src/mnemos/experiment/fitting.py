"""Defaults that fit: what a method takes instead of a default that it can't work with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mnemos.common.options import Options, completed, nested_fields
from mnemos.errors import ConfigError
from mnemos.experiment.overrides import inline_yaml, merge
from mnemos.methods.method import Method
from mnemos.models.model import Model


def fitted(values: dict[str, Any], schema: type[Options]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The values of an experiment with defaults that fit its method, and a sentence about each.

    Only fields that the values don't set are changed. `schema` is the class of experiments.
    """
    try:
        method, model = _part(values, "method", schema), _part(values, "model", schema)
    except ConfigError:  # it is explained where the experiment is read
        return values, ()
    if not isinstance(method, Method) or not isinstance(model, Model) or not method.imported:
        return values, ()
    changes: dict[str, Any] = {}
    said = []
    # Those of a blend have no dotted names by which an option of theirs could be set.
    for part in (*method.all_terms, method.correction, method.weighting, method.rule, method.server):
        for field, fit in part.fitting(model).items():
            if field not in changes and not any(_is_set(values, name) for name in (field, *fit.unless)):
                changes[field] = fit.value
                said.append(f"{field}={inline_yaml(fit.value)}, which isn't the default: {fit.why}")
    return (merge(values, changes, schema), tuple(said)) if changes else (values, ())


def _part(values: Mapping[str, Any], field: str, schema: type[Options]) -> Any:
    """The part that a field of the experiment holds."""
    nested, default = nested_fields(schema)[field], schema.model_fields[field].default
    if nested.choices is None:
        return None
    return nested.choices.parse(completed(values.get(field, default), nested, default))


def _is_set(values: Any, field: str) -> bool:
    """Whether the values set a field, given by its dotted name."""
    for step in field.split("."):
        if isinstance(values, Options):
            values = getattr(values, step) if step in values.model_fields_set else None
        else:
            values = values.get(step) if isinstance(values, Mapping) else None
        if values is None:
            return False
    return True
