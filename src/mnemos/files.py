"""Files that a crash leaves as they were or as they should be, never half of it; and locks that it ends."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path, *, sync: bool = False) -> Iterator[BinaryIO]:
    """A new file to write that takes the path's place when all went well, and leaves no trace otherwise.

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
        if sync:
            _sync_folder(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Replace a file in one step."""
    with replacing(path, sync=sync) as file:
        file.write(data)


def remove_unfinished(folder: Path) -> None:
    """Remove what a killed process left behind."""
    for path in folder.glob(".*.part"):
        path.unlink(missing_ok=True)


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Whether this process has the lock that a file stands for; the system ends it with the process."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        # Whoever only looks whether it is taken has it for a moment, too.
        for _ in range(10):
            if taken := try_lock(handle, fcntl.LOCK_EX):
                break
            time.sleep(0.02)
        yield taken
    finally:
        os.close(handle)


def try_lock(handle: int, how: int) -> bool:
    """Take the lock of an open file, if nobody has it."""
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
