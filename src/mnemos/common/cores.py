"""How many processor cores this process may use."""

from __future__ import annotations

import os

from mnemos.errors import ConfigError

VARIABLE = "MNEMOS_CORES"
"""Environment variable that sets the number, so that several runs can share a machine."""


def cores() -> int:
    """`$MNEMOS_CORES`, or the cores that the system lets this process use."""
    given = os.environ.get(VARIABLE)
    if not given:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not given.isdecimal() or int(given) < 1:
        raise ConfigError(f"found '{given}'; expected a whole number ≥ 1", VARIABLE)
    return int(given)
