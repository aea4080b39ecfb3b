"""Files that are replaced whole or not at all, also in a crash; and locks that end with their process."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path, *, sync: bool = False) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` on success, and is removed if an error is raised.

    With `sync` the new file also survives a loss of power.
    """
    # Not tempfile: its files are private to the user, and data and runs are often shared.
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with unfinished.open("xb") as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    if sync:
        _sync_folder(path.parent)


def write_atomically(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Replace a file in one step."""
    with replacing(path, sync=sync) as file:
        file.write(data)


def remove_unfinished(folder: Path) -> None:
    """Remove the unfinished files that a killed process left in a folder."""
    for path in folder.glob(".*.part"):
        path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Lock:
    """A lock on a file, held by this process."""

    path: Path
    handle: int

    def moved(self) -> Path | None:
        """The folder that the file was moved to; None if it wasn't moved, `OSError` if that isn't known."""
        with suppress(OSError):
            if os.path.samestat(self.path.stat(), os.fstat(self.handle)):
                return None
        if not os.fstat(self.handle).st_nlink:
            raise FileNotFoundError(errno.ENOENT, "it was removed", str(self.path))
        return (Path("/proc/self/fd") / str(self.handle)).readlink().parent


@contextmanager
def locked(path: Path) -> Iterator[Lock | None]:
    """Take the lock of a file; None if another process holds it. The lock ends with the process."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        # A process that only tests the lock holds it for a moment, too.
        for _ in range(10):
            if held := try_lock(handle, fcntl.LOCK_EX):
                break
            time.sleep(0.02)
        yield Lock(path, handle) if held else None
    finally:
        os.close(handle)


def try_lock(handle: int, mode: int) -> bool:
    """Take the lock of an open file, shared or exclusive by `mode`, if it is free; returns whether it was."""
    try:
        fcntl.flock(handle, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
