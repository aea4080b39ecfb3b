"""What Ctrl-C and SIGTERM do to a run: it stops at once, but not while a finished round is being saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_on_terminate() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that the run is saved when it is terminated."""
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers can be set in the main thread only
        return

    def interrupt(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Inside, Ctrl-C and SIGTERM wait: what they do is done at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers can be set in the main thread only, and act there only
        return
    came: list[tuple[int, FrameType | None]] = []
    before = {kind: signal.getsignal(kind) for kind in _STOPPING}
    held = [kind for kind, handler in before.items() if callable(handler)]
    for kind in held:
        signal.signal(kind, lambda *call: came.append(call))
    try:
        yield
    finally:
        for kind in held:
            signal.signal(kind, before[kind])
    for caught, frame in came[:1]:
        handler = before[signal.Signals(caught)]
        assert callable(handler)
        handler(caught, frame)
