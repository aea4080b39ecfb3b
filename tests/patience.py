"""Waiting that ends."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LONG = 240
"""Seconds after which something is taken to hang."""


def wait_for(found: Callable[[], T], what: str) -> T:
    """What is found, as soon as there is something."""
    end = time.monotonic() + LONG
    while not (value := found()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.2)
    return value
