"""What an examination finds: facts for a script, lines for a person, and problems with what to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Problem:
    """Something that isn't as it should be."""

    what: str
    """What is wrong, in one sentence."""
    do: str
    """What to do about it."""
    broken: bool = False
    """Whether Mnemos can't work because of it."""


@dataclass
class Section:
    """What was found about one concern."""

    title: str
    lines: list[tuple[str, str]] = field(default_factory=list)
    """(name, what was found), one a line."""
    facts: dict[str, Any] = field(default_factory=dict)
    """The same as plain data."""
    problems: list[Problem] = field(default_factory=list)


def size(count: float) -> str:
    """A number of bytes as `12.3 GB`."""
    return f"{count / 1e9:.1f} GB"
