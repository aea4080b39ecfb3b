"""Processes that end with the one that started them."""

from __future__ import annotations

import ctypes
import signal
import sys


def end_with_parent() -> None:
    """On Linux, have the kernel kill this process when the process that started it ends."""
    if sys.platform == "linux":
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
