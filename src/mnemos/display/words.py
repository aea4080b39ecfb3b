"""Numbers in words."""

from __future__ import annotations


def percent(share: float | None) -> str:
    """`93.2 %`, or a dash."""
    return "–" if share is None else f"{100 * share:.1f} %"


def plural(count: int, word: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {word}" + ("s" if count != 1 else "")


def duration(seconds: float) -> str:
    """`8 s`, `12 min`, `3 h 20 min`, `2 d 5 h`, `40 d` or `1.5 years`: as precise as a person wants it."""
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if hours >= 24 * 365:
        return f"{hours / 24 / 365:.2g} years"
    if hours >= 24 * 10:
        return f"{round(hours / 24)} d"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{hours // 24} d {hours % 24} h"
