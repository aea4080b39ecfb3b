"""Defaults that fit: what is taken instead of a default that a method, or the data, can't work with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mnemos.common.options import Options, completed, nested_fields
from mnemos.data.dataset import Source
from mnemos.errors import ConfigError
from mnemos.experiment.overrides import inline_yaml, merge
from mnemos.methods.method import Method
from mnemos.models.model import Model

_TEXTS = "text"
"""The model of texts that is taken if none is named."""


def fitted(values: dict[str, Any], schema: type[Options]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The values of an experiment with defaults that fit its data and its method, and a sentence about each.

    Only fields that the values don't set are changed. `schema` is the class of experiments.
    """
    values, said = _for_texts(values, schema)
    try:
        method, model = _part(values, "method", schema), _part(values, "model", schema)
    except ConfigError:  # it is explained where the experiment is read
        return values, said
    if not isinstance(method, Method) or not isinstance(model, Model) or not method.imported:
        return values, said
    changes: dict[str, Any] = {}
    # Those of a blend have no dotted names by which an option of theirs could be set.
    for part in (*method.all_terms, method.correction, method.weighting, method.rule, method.server):
        for field, fit in part.fitting(model).items():
            if field not in changes and not any(_is_set(values, name) for name in (field, *fit.unless)):
                changes[field] = fit.value
                said = (*said, _sentence(field, fit.value, fit.why))
    return (merge(values, changes, schema) if changes else values), said


def _for_texts(values: dict[str, Any], schema: type[Options]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The values with a model of texts, where the data is texts and no model is named."""
    if _is_set(values, "model") or not _is_set(values, "data"):
        return values, ()
    try:
        data = _part(values, "data", schema)
    except ConfigError:
        return values, ()
    if not (isinstance(data, Source) and data.texts):
        return values, ()
    return merge(values, {"model": _TEXTS}, schema), (
        _sentence("model", _TEXTS, "the data's samples are texts"),
    )


def _sentence(field: str, value: Any, why: str) -> str:
    return f"{field}={inline_yaml(value)}, which isn't the default: {why}"


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
