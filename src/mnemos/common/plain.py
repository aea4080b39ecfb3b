"""Plain data from untrusted text: everything that is wrong with it is a `ValueError`."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def line(text: str, most: int) -> str:
    """Untrusted text as one line of at most `most` printable characters."""
    cleaned = "".join(letter if letter.isprintable() else " " for letter in text[: 10 * most])
    return " ".join(cleaned.split())[:most]


def whole(value: Any) -> int:
    """The value, if it is an integer from 0 to 2⁶³ − 1; floats, text and truth values are refused."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"found {value!r}, and a whole number from 0 on is expected")
    return value


def number(value: Any) -> float:
    """The value as a float, if it is a number; it may be infinite or NaN."""
    if type(value) is not float and type(value) is not int:
        raise ValueError(f"found {value!r}, and a number is expected")
    try:
        return float(value)
    except OverflowError:
        raise ValueError("found a number that is too large") from None
