"""Which code of other people may run: code that this user has run here on purpose, or says is to be trusted.

A run directory or a recipe that comes from another person can name any code by import path. It is imported
only if this user has run it before: the same import path, leading to the same file, with the same options
(these decide what a function such as `torch.hub:load` runs). A user has run code that was named in an
experiment of their own, or that they said is to be trusted. What was run is recorded in the user's own
folder, so that nothing that is downloaded can claim to be known.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import platformdirs

from mnemos.common.imports import only, origin
from mnemos.common.plain import parse_json
from mnemos.engines.engine import Engine, engines
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment

T = TypeVar("T")

Trust = bool | Collection[str]
"""True if all code may run, False for none, or the import paths of the code that may."""

Use = tuple[str, str]
"""An import path, and the options that it is used with as JSON."""

Known = tuple[str, str | None, str]
"""An import path, the file that it leads to, and a digest of the options."""

_MOST = 5
"""An error names this many import paths at most."""

_here: set[Known] = set()
"""What was run in this process; it counts even if the user's folder can't be written to."""


class UntrustedError(ConfigError):
    """A file names code that this user has neither run before nor said may run."""

    def __init__(self, where: str, paths: Collection[str]) -> None:
        self.paths = frozenset(paths)
        shown = sorted(paths)[:_MOST]
        files: dict[str, list[str]] = {}
        for path in shown:
            files.setdefault(origin(path) or "no file that can be found", []).append(path)
        named = ", ".join(f"{', '.join(group)} of {file}" for file, group in files.items())
        more = f" and {len(paths) - _MOST} more" if len(paths) > _MOST else ""
        super().__init__(
            f"{where}: it names code that you have not run here before, or not with its options "
            f"({named}{more}); look at it first, and if you trust it, add --trust (in Python, trust=True)"
        )


def opened(
    where: str,
    parse: Callable[[], T],
    trust: Trust = False,
    needed: Callable[[T], Collection[str]] | None = None,
) -> T:
    """The result of `parse`, with the code that it names imported; `UntrustedError` if some isn't trusted.

    `where` is what the error names. `parse` is repeated, because parts that are trusted may name other code:
    nothing is imported before everything that is named so far is trusted. `needed` gives, of what was parsed,
    the import paths that are needed: other code isn't imported.
    """
    allowed: set[str] = set()
    seen: set[Use] = set()
    while True:
        with only(allowed) as named:
            found = parse()
        left, uses = named.left, named.uses
        if needed is not None:
            wanted = needed(found)
            left, uses = left.intersection(wanted), {use for use in uses if use[0] in wanted}
        # A path that was only mentioned, without options, is in `left` and not in `uses`.
        uses = uses | {(path, "{}") for path in left - {path for path, _ in uses}}
        unknown = {path for path, options in uses - seen if not _trusted(path, options, trust)}
        if unknown:
            raise UntrustedError(where, unknown)
        seen |= uses
        if not left:
            _remember(seen)
            return found
        allowed |= left


def remember_own(experiment: Experiment) -> None:
    """Record the code that an experiment of this user names, because the user is about to run it."""
    with suppress(ConfigError):  # a class that can't be imported by its path can't be resumed either
        opened("", lambda: Experiment.parse(experiment.model_dump(mode="json")), True)


def remember_engine(engine: Engine) -> None:
    """The same for the engine that a run records: it has found its devices, so its options are others."""
    with suppress(ConfigError):
        opened("", lambda: engines.parse(engine.dump()), True)


def _remember(uses: Iterable[Use]) -> None:
    """Record uses of code in the user's folder, if it can be written to, and in this process."""
    new = {_known_as(*use) for use in uses} - _here
    _here.update(new)
    fresh = sorted((path, file, options) for path, file, options in new - _written() if file is not None)
    if not fresh:
        return
    rows = ({"path": path, "file": file, "options": options} for path, file, options in fresh)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    with suppress(OSError):
        _file().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(_file(), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, lines.encode())
        finally:
            os.close(handle)


def _trusted(path: str, options: str, trust: Trust) -> bool:
    if trust if isinstance(trust, bool) else path in trust:
        return True
    use = _known_as(path, options)
    return use in _here or (use[1] is not None and use in _written())


def _known_as(path: str, options: str) -> Known:
    return path, origin(path), hashlib.sha256(options.encode()).hexdigest()[:32]


def _written() -> set[Known]:
    """What earlier processes have recorded; lines that can't be read are skipped."""
    found: set[Known] = set()
    with suppress(OSError):
        for line in _file().read_bytes().splitlines():
            with suppress(ValueError, TypeError, KeyError):
                row = parse_json(line)
                found.add((str(row["path"]), str(row["file"]), str(row["options"])))
    return found


def _file() -> Path:
    return Path(platformdirs.user_state_dir("mnemos")) / "trusted.jsonl"
