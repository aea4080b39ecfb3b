"""A check of memory: a compressed file may hold a thousand times its size."""

from __future__ import annotations

import os

from mnemos.errors import DataError


def check_room(size: int, where: object) -> None:
    """Refuse data of a size in bytes that exceeds this machine's memory; `where` is what the error names."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory:
        raise DataError(
            f"{where} would take {size / 1e9:,.1f} GB, and this machine has {memory / 1e9:,.1f} GB of memory"
        )
