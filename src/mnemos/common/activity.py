"""What is being done right now, for a person who waits: any part can tell it, and a display may listen.

Nothing depends on it: without a listener, what is told is dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

Listener = Callable[[str, float | None], None]
"""Called with what is being done, in a few words, and how much of the round's training is done, if any."""

_BETWEEN = 0.1
"""Seconds between two steps that are told: a display that hears of each would slow training down."""


@dataclass
class _Told:
    """A listener, and what it was told last."""

    listener: Listener
    through: int = 0
    clients: int = 0
    """How many clients the round trains; 0 outside of training."""
    time: float = 0.0


_told: ContextVar[_Told | None] = ContextVar("told", default=None)


def doing(what: str) -> None:
    """Tell what is being done, such as `reading cifar10`."""
    if told := _told.get():
        told.clients = 0
        told.listener(what, None)


def training(through: int, clients: int) -> None:
    """Tell that `through` of the round's `clients` have been trained."""
    if told := _told.get():
        told.through, told.clients, told.time = through, clients, time.monotonic()
        told.listener(f"client {min(through + 1, clients)} of {clients}", through / max(clients, 1))


def step(done: int, steps: int, together: int = 1) -> None:
    """Tell that the next `together` clients, which train at once, have made `done` of their `steps`.

    Some steps aren't told, and none outside of a round's training.
    """
    told = _told.get()
    if told is None or not told.clients or time.monotonic() < told.time + _BETWEEN:
        return
    told.time = time.monotonic()
    first, last = told.through + 1, min(told.through + together, told.clients)
    named = f"clients {first}–{last}" if last > first else f"client {min(first, told.clients)}"
    share = (told.through + together * done / steps) / told.clients
    told.listener(f"{named} of {told.clients}, step {done} of {steps}", min(share, 1.0))


@contextmanager
def told_to(listener: Listener) -> Iterator[None]:
    """Inside, in this thread, `listener` is called with what is being done; at the end with nothing."""
    before = _told.set(_Told(listener))
    try:
        yield
    finally:
        _told.reset(before)
        listener("", None)
