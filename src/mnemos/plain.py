"""Plain data from bytes that may be anybody's: whatever is wrong with them is a `ValueError`."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """A value in JSON."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def line(text: str, most: int) -> str:
    """What somebody else has written as one line of at most so many characters, fit for a terminal."""
    cleaned = "".join(letter if letter.isprintable() else " " for letter in text[: 10 * most])
    return " ".join(cleaned.split())[:most]


def whole(value: Any) -> int:
    """A whole number from 0 on that 64 bits hold, and nothing that could merely be turned into one."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"found {value!r}, and a whole number from 0 on is expected")
    return value


def number(value: Any) -> float:
    """A number, which may be infinite or none."""
    if type(value) is not float and type(value) is not int:
        raise ValueError(f"found {value!r}, and a number is expected")
    try:
        return float(value)
    except OverflowError:
        raise ValueError("found a number that is too large") from None
