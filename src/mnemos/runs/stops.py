"""Errors of the machine that end a run: its directory is moved or removed, or memory or disk runs out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mnemos.common.files import Lock
from mnemos.common.shortage import shortage
from mnemos.errors import MnemosError
from mnemos.runs.run import Run


class StoppedError(MnemosError):
    """The machine doesn't let the run go on; its finished rounds are saved."""


def check_directory(run: Run, lock: Lock) -> None:
    """Raise StoppedError if the run's directory was moved or removed; its path could be another run's now."""
    try:
        moved_to = lock.moved()
    except OSError:
        raise StoppedError(
            f"{run.path}: its directory was removed or replaced during the run; what was finished is gone, "
            "unless the directory is kept elsewhere"
        ) from None
    if moved_to is not None:
        raise StoppedError(
            f"{run.path}: its directory was moved during the run, to {moved_to}, where the finished rounds "
            f"are; 'mnemos resume {moved_to}' continues it"
        )


@contextmanager
def stops(run: Run, lock: Lock) -> Iterator[None]:
    """Around a run: turn errors of the machine into a StoppedError of one sentence; keep others."""
    try:
        yield
    except Exception as error:
        # Whatever fails in a directory that isn't the run's any more, fails for that reason: a folder that
        # was listed a moment ago is empty, a file is another run's.
        check_directory(run, lock)
        sentence = shortage(error) or _file_error(error, run)
        if sentence is None:
            raise
        raise StoppedError(
            f"{run.path}: {sentence}; finished rounds are saved, and 'mnemos resume {run.path}' continues it"
        ) from error


def _file_error(error: Exception, run: Run) -> str | None:
    """The sentence for an error with a file of the run; None for any other error."""
    name = error.filename if isinstance(error, OSError) else None
    if not isinstance(name, str) or run.path not in Path(name).parents:
        return None
    return f"{name} can't be read or written ({error.strerror})" if isinstance(error, OSError) else None
