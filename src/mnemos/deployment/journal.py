"""What each side of a federation says: sentences for the terminal, and a log file with dates and levels."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path

_FORMAT, _DATE = "%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%dT%H:%M:%S%z"
_LARGEST, _KEPT = 5_000_000, 3
"""The most bytes of a log file, and how many older ones are kept."""
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_LEVEL = re.compile(r"^(?:\d{4}-\d\d-\d\dT[\d:.]+Z )?(DEBUG|INFO|WARNING|ERROR|CRITICAL)\s*(?::\s*|(?=\[))")


Say = Callable[[str], None]
"""A function that says a sentence; a Journal is one."""


class Journal:
    """Prints sentences and writes them into a log file; calling it is the same as `info`."""

    def __init__(self, log: Path, show: Callable[[str], None], *, dated: bool) -> None:
        """`show` prints a line; with `dated`, lines have a date and a level there, too.

        A terminal shows the sentence alone. Where a supervisor collects lines, they look like the log file's.
        """
        self._show, self._format = show, _formatter() if dated else None
        self._file = log_file(log)

    def __call__(self, sentence: str) -> None:
        """Say what has happened."""
        self._say(logging.INFO, sentence)

    def warn(self, sentence: str) -> None:
        """Say what may need attention."""
        self._say(logging.WARNING, sentence)

    def fail(self, sentence: str) -> None:
        """Write an error into the log file; the command prints it."""
        self._file.handle(_record(logging.ERROR, sentence))

    def note(self, sentence: str) -> None:
        """Write a sentence into the log file alone."""
        self._file.handle(_record(logging.INFO, sentence))

    def _say(self, level: int, sentence: str) -> None:
        record = _record(level, sentence)
        self._file.handle(record)
        plain = sentence if level < logging.WARNING else f"warning: {sentence}"
        self._show(self._format.format(record) if self._format else plain)

    def close(self) -> None:
        """Close the log file."""
        self._file.close()


def warn(say: Say, sentence: str) -> None:
    """Say what may need attention; a Journal gives it that level."""
    (say.warn if isinstance(say, Journal) else say)(sentence)


def log_file(path: Path) -> RotatingFileHandler:
    """A log file whose lines have a date and a level; it is cut into files of a few megabytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = RotatingFileHandler(path, maxBytes=_LARGEST, backupCount=_KEPT, delay=True, encoding="utf-8")
    handler.setFormatter(_formatter())
    return handler


def foreign(line: str) -> logging.LogRecord:
    """A line that Flower has printed, as a record: without colour codes, with the level that it names."""
    text = _COLOUR.sub("", line).rstrip()
    found = _LEVEL.match(text)
    level = logging.getLevelNamesMapping()[found[1]] if found else logging.INFO
    return _record(level, text[found.end() :] if found else text)


def _formatter() -> logging.Formatter:
    return logging.Formatter(_FORMAT, _DATE)


def _record(level: int, sentence: str) -> logging.LogRecord:
    return logging.LogRecord("mnemos", level, "", 0, sentence, None, None)
