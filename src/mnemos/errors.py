"""What can go wrong on the user's side, each with the exit code it ends the command with."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST = 2_000
"""Signs of a sentence that are shown."""


class MnemosError(Exception):
    """An error that is explained in one sentence and shown without a traceback."""

    exit_code = 1

    def __str__(self) -> str:
        # It may quote a file of someone else: no lines, no signs that a terminal obeys, no megabytes.
        text = " ".join(super().__str__().splitlines())
        text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
        return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


class ConfigError(MnemosError):
    """A wrong field, value or combination in an experiment or on the command line."""

    exit_code = 2

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.message = message
        self.path = path

    def under(self, prefix: str) -> ConfigError:
        """The same error seen from one level further out: `alpha` becomes `partition.alpha`."""
        return ConfigError(self.message, f"{prefix}.{self.path}" if self.path else prefix)


class DataError(MnemosError):
    """Data that is missing, damaged or of an unexpected form."""

    exit_code = 3


class DivergedError(MnemosError):
    """Training whose loss or weights stopped being finite."""

    exit_code = 4


class PausedError(MnemosError):
    """A federation that can't go on for now: too few clients could be used. All finished rounds are saved."""

    exit_code = 5


def allowed(names: Iterable[str]) -> str:
    """`allowed: a, b, c` for the end of an error sentence."""
    return "allowed: " + ", ".join(sorted(names))


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """`did you mean 'alpha'? ` when a name comes close to the word, in capitals or not; else nothing."""
    known = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return f"did you mean '{known[close[0]]}'? " if close else ""
