"""A budget of time: how it is written, and how much of it all calls together have used."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from pathlib import Path

from mnemos.common.files import write_atomically
from mnemos.common.plain import number, parse_json
from mnemos.errors import ConfigError

_PATTERN = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")
_EVERY = 1.0
"""Seconds after which the time used is written again."""


class BudgetSpentError(KeyboardInterrupt):
    """The time is used up in the middle of a run. It is interrupted like by Ctrl-C, so it can go on later."""


def parse_budget(text: str) -> float:
    """The seconds of a time such as `90s`, `20m`, `2h` or `1h30m`."""
    found = _PATTERN.fullmatch(text.strip())
    parts = [float(part or 0) for part in found.groups()] if found else [0.0, 0.0, 0.0]
    seconds = 3600 * parts[0] + 60 * parts[1] + parts[2]
    if seconds <= 0:
        raise ConfigError(f"found '{text}'; expected a time such as 90s, 20m, 2h or 1h30m", "budget")
    return seconds


class Budget:
    """A budget in seconds, and the time that was used of it, which is kept in a file over all calls."""

    def __init__(self, seconds: float, path: Path, began: float | None = None) -> None:
        """`path` is the file with the time used; it needn't be there yet.

        `began` is when this call began, by `time.monotonic`; None: now.
        """
        self.seconds = seconds
        self._path = path
        self._before = 0.0
        with suppress(OSError, ValueError, TypeError, KeyError):
            self._before = number(parse_json(path.read_text())["seconds"])
        self._saved = time.monotonic()
        self._begin = self._saved if began is None else began

    @property
    def used(self) -> float:
        """Seconds used so far, by earlier calls and this one."""
        return self._before + time.monotonic() - self._begin

    @property
    def left(self) -> float:
        """Seconds left; not below 0."""
        return max(0.0, self.seconds - self.used)

    def save(self) -> None:
        """Write the time used."""
        self._saved = time.monotonic()
        write_atomically(self._path, json.dumps({"seconds": round(self.used, 3)}).encode())

    def tick(self) -> None:
        """Write the time used, once a second at most, and raise a `BudgetSpentError` if none is left."""
        if time.monotonic() - self._saved > _EVERY:
            self.save()
        if not self.left:
            raise BudgetSpentError
