"""Ctrl-C on the command line: the first is answered at once and stops the work, the second ends all."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from mnemos.display import terminal

_STOPPING = "stopping; finished rounds are saved (Ctrl-C again: end at once)"
_ENDED = "ended at once; finished rounds are saved"
_SHOW_CURSOR = "\x1b[?25h"


@contextmanager
def acknowledged(hint: Callable[[], str]) -> Iterator[None]:
    """Around work that Ctrl-C stops: say so at once, and end the process at the second Ctrl-C.

    `hint` returns a few words on how to go on, which are printed when the process is ended. Nothing is lost
    by that: each round is on disk when it is finished, and a run that was cut short counts as interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers can be set in the main thread only
        return
    pressed = 0

    def interrupt(_signal: int, _frame: object) -> None:
        nonlocal pressed
        pressed += 1
        if pressed > 1:
            ending = _SHOW_CURSOR if sys.stderr.isatty() else ""
            _write(f"{ending}\n{_ENDED}; {hint()}\n")
            os._exit(130)
        try:
            terminal.errors.print(_STOPPING, markup=False, highlight=False)
        except RuntimeError:  # the signal came while a line was being written
            _write(f"\n{_STOPPING}\n")
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _write(text: str) -> None:
    with suppress(OSError):
        os.write(2, text.encode())
