"""Errors that a user can cause, each with the exit code of the command that it ends."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_LONGEST = 2_000
"""Characters of a message that are shown; the rest is cut off."""


class MnemosError(Exception):
    """An error that is explained in one sentence and shown without a traceback."""

    exit_code = 1

    def __str__(self) -> str:
        # A message may quote an untrusted file: one line, no control characters, no megabytes.
        text = " ".join(super().__str__().splitlines())
        text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
        return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


class ConfigError(MnemosError):
    """A wrong field, value or combination in an experiment or on the command line."""

    exit_code = 2

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.message = message
        self.path = path

    def under(self, prefix: str) -> ConfigError:
        """The same error with its field below another one: `alpha` becomes `partition.alpha`."""
        return ConfigError(self.message, f"{prefix}.{self.path}" if self.path else prefix)


class DataError(MnemosError):
    """Data that is missing, damaged or of an unexpected form."""

    exit_code = 3


class DivergedError(MnemosError):
    """Training whose loss or weights stopped being finite."""

    exit_code = 4


class PausedError(MnemosError):
    """A federation that pauses because too few clients could be used; all finished rounds are saved."""

    exit_code = 5


def allowed(names: Iterable[str]) -> str:
    """`allowed: a, b, c` for the end of an error sentence."""
    return "allowed: " + ", ".join(sorted(names))


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """`did you mean 'alpha'? ` if one of the names is close to the word, ignoring case; else empty."""
    known = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return f"did you mean '{known[close[0]]}'? " if close else ""


@contextmanager
def naming(field: str) -> Iterator[None]:
    """Let a `ConfigError` that is raised inside name the field of the experiment it is about."""
    try:
        yield
    except ConfigError as error:
        raise error.under(field) from None
