"""Inputs that are nearly right: valid ones with something wrong, and what formats allow but nobody means."""

from __future__ import annotations

import copy
import functools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

Inputs = st.SearchStrategy[bytes]

_GONE = object()
"""Stands for a value that is taken away."""

WILD: tuple[Any, ...] = (
    None,
    True,
    False,
    -1,
    0,
    1,
    2,
    3,
    255,
    2**31,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63) - 1,
    10**400,
    0.5,
    -0.0,
    1e-320,
    1e308,
    math.inf,
    -math.inf,
    math.nan,
    "",
    "0",
    "-1",
    "1e999",
    "a",
    "\0",
    "\ud800",
    "é\n%s{}",
    "x" * 300,
    "../../x",
    "name",
    "nan",
    [],
    {},
    [[]],
    [None],
    [{}],
    {"": {}},
    {"name": None},
    {"name": "nothing"},
    [1, "2", 3.5],
)
"""Values that are often not thought of."""

_BYTES = (
    b"\0",
    b"\xff",
    b"\x80",
    b"\n",
    b"{",
    b"[",
    b'"',
    b":",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\0\0\0\0\0\0\0\x80",
    b"\0\0\0\x40",
    b"1e999",
    b"-1",
    b"NaN",
    b"9" * 30,
)

_place = st.one_of(st.integers(0, 127), st.integers(0, 1 << 20))

Edit = Callable[[bytes], bytes]


def mutated(samples: Sequence[bytes], words: Sequence[bytes] = ()) -> Inputs:
    """Valid inputs with some edits: bits flipped, bytes replaced, put in, cut out or swapped, two spliced."""
    piece = st.one_of(st.sampled_from([*_BYTES, *words]), st.binary(min_size=1, max_size=8))
    edits: st.SearchStrategy[Edit] = st.one_of(
        st.builds(_flip, _place, st.integers(0, 7)),
        st.builds(_replace, _place, piece),
        st.builds(_insert, _place, piece),
        st.builds(_cut, _place, st.integers(1, 64)),
        st.builds(_repeat, _place, st.integers(1, 64), st.integers(1, 40)),
        st.builds(_end, _place),
        st.builds(_splice, _place, st.sampled_from(list(samples)), _place),
    )
    return st.builds(_apply, st.sampled_from(list(samples)), st.lists(edits, min_size=1, max_size=4))


def altered(value: Any, words: Sequence[Any] = (), dumps: Callable[[Any], bytes] | None = None) -> Inputs:
    """Plain data as JSON (or as `dumps` writes it) in which some values are replaced, moved or taken away."""
    return changes(value, words).map(dumps or as_json)


def changes(value: Any, words: Sequence[Any] = ()) -> st.SearchStrategy[Any]:
    """Plain data in which some values are replaced, moved or taken away."""
    paths = [path for path, _ in _walk(value)]
    own = [node for _, node in _walk(value)]
    new = st.one_of(
        st.sampled_from([*WILD, *words]), st.sampled_from(own), st.just(_GONE), plain(), st.just(deep(60))
    )
    edits = st.lists(st.tuples(st.sampled_from(paths), new, st.booleans()), min_size=1, max_size=3)
    return edits.map(lambda listed: _edit(value, listed))


@functools.cache
def plain() -> st.SearchStrategy[Any]:
    """Any plain data, of moderate size."""
    leaves = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), st.sampled_from(WILD)
    )
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=6,
    )


def deep(levels: int) -> Any:
    """A list in a list in a list."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def as_json(value: Any) -> bytes:
    """JSON as Python writes it, with NaN and Infinity."""
    return json.dumps(value).encode()


def deep_json(levels: int = 100_000) -> bytes:
    """JSON that is nested too deeply for anybody."""
    return b"[" * levels + b"]" * levels


# --- edits of bytes -----------------------------------------------------------------------------------


def _apply(content: bytes, edits: Sequence[Edit]) -> bytes:
    for edit in edits:
        content = edit(content)
    return content


def _flip(place: int, bit: int) -> Edit:
    def edit(content: bytes) -> bytes:
        if not content:
            return content
        at = place % len(content)
        return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]

    return edit


def _replace(place: int, piece: bytes) -> Edit:
    def edit(content: bytes) -> bytes:
        at = place % (len(content) + 1)
        return content[:at] + piece + content[at + len(piece) :]

    return edit


def _insert(place: int, piece: bytes) -> Edit:
    def edit(content: bytes) -> bytes:
        at = place % (len(content) + 1)
        return content[:at] + piece + content[at:]

    return edit


def _cut(place: int, length: int) -> Edit:
    def edit(content: bytes) -> bytes:
        at = place % (len(content) + 1)
        return content[:at] + content[at + length :]

    return edit


def _repeat(place: int, length: int, times: int) -> Edit:
    def edit(content: bytes) -> bytes:
        at = place % (len(content) + 1)
        return content[:at] + content[at : at + length] * times + content[at:]

    return edit


def _end(place: int) -> Edit:
    return lambda content: content[: place % (len(content) + 1)]


def _splice(place: int, other: bytes, start: int) -> Edit:
    def edit(content: bytes) -> bytes:
        return content[: place % (len(content) + 1)] + other[start % (len(other) + 1) :]

    return edit


# --- edits of plain data ------------------------------------------------------------------------------


def _walk(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _walk(inner, (*path, key))


def _edit(value: Any, edits: Sequence[tuple[tuple[Any, ...], Any, bool]]) -> Any:
    """`value` with other values at some places; `beside` puts one under a new key instead."""
    value = copy.deepcopy(value)
    for path, new, beside in edits:
        if not path:
            value = value if new is _GONE else copy.deepcopy(new)
            continue
        owner = value
        try:
            for step in path[:-1]:
                owner = owner[step]
            owner[path[-1]]  # it may have gone with an earlier edit
        except (LookupError, TypeError):
            continue
        if not isinstance(owner, dict | list):
            continue
        if new is _GONE:
            del owner[path[-1]]
        elif beside and isinstance(owner, dict):
            owner[f"{path[-1]}x"] = copy.deepcopy(new)
        else:
            owner[path[-1]] = copy.deepcopy(new)
    return value
