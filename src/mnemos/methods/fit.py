"""A setting that a part of a method takes where the usual default won't do."""

from __future__ import annotations

from typing import Any, NamedTuple


class Fit(NamedTuple):
    """A value for a setting that an experiment leaves out."""

    value: Any
    """The value that fits."""
    why: str
    """Why the default doesn't, for the sentence that users read."""
    unless: tuple[str, ...] = ()
    """Other settings, by dotted names, with which the part needs none of this."""
