"""What a compressed file holds may be a thousand times its size."""

from __future__ import annotations

import os

from mnemos.errors import DataError


def check_room(size: int, where: object) -> None:
    """Refuse what this machine's memory can't hold, before the system ends the process for it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory:
        raise DataError(
            f"{where} would take {size / 1e9:,.1f} GB, and this machine has {memory / 1e9:,.1f} GB of memory"
        )
