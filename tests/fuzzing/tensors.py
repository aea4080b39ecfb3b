"""Safetensors files, by their format: a header's length, a JSON header, and the tensors' bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hypothesis import strategies as st

from fuzzing.inputs import Inputs, as_json, changes, deep_json, mutated

_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "F64": 64, "I64": 64, "U64": 64, "C64": 64, "F128": 128,
}  # fmt: skip

_ODD = (b"1e999", b"-1", b"NaN", b"9" * 400, b'"7"', b"true", b"null", b"1.5", b"9223372036854775808")
"""JSON in the place of a number."""

_Specs = Mapping[str, tuple[str, Sequence[int]]]


def join(header: Any, body: bytes) -> bytes:
    """A file of a header and a body, whether they fit or not."""
    text = header if isinstance(header, bytes) else as_json(header)
    return len(text).to_bytes(8, "little") + text + body


def split(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header and the body of a valid file."""
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def _told(given: Any, header: Any, body: bytes, entry: str) -> bytes:
    return join(_with(header, entry, as_json(given)), body)


def files(samples: Sequence[bytes], entry: str | None = None) -> Inputs:
    """Files like the samples with something wrong; `entry` is the metadata's that holds JSON."""
    sources = []
    for sample in samples:
        header, body = split(sample)
        sources.append(changes(header).map(partial(join, body=body)))
        names = [name for name in header if name != "__metadata__"]
        about = header.get("__metadata__")
        sources.append(_retyped(names, about))
        if entry is not None:
            inner = changes(json.loads(header["__metadata__"][entry]))
            sources.append(inner.map(partial(_told, header=header, body=body, entry=entry)))
    return st.one_of(*sources, mutated(samples))


def nasty(sample: bytes, entry: str | None = None) -> list[bytes]:
    """What a file may claim: more than it has, more than there is, too deep, twice, nothing."""
    header, body = split(sample)
    name = next(name for name in header if name != "__metadata__")
    huge = {**header, name: {"dtype": "F32", "shape": [2**61], "data_offsets": [0, 2**63 - 1]}}
    large = {**header, name: {"dtype": "F32", "shape": [10**9, 10], "data_offsets": [0, 4 * 10**10]}}
    twice = as_json(header)[:-1] + b"," + as_json(header)[1:]
    found = [
        b"",
        b"\0" * 8,
        (2**63 - 1).to_bytes(8, "little") + b"{}",
        (2**64 - 1).to_bytes(8, "little") + b"{}",
        join({}, b""),
        join(b"[]", b""),
        join(b"null", b""),
        join(deep_json(), b""),
        join(huge, body),
        join(large, body),
        join(twice, body),
        join({"__metadata__": header.get("__metadata__", {})}, b""),
    ]
    if entry is not None:
        inner = [
            b"",
            b"null",
            b"[]",
            b"{}",
            b"1e999",
            b'"\\ud800"',
            b"9" * 5000,
            deep_json(),
            b'{"a":' * 10**5,
        ]
        known = json.loads(header["__metadata__"][entry])
        marked = [as_json({**known, field: "here"}) for field in known]
        inner += [text.replace(b'"here"', other, 1) for text in marked for other in _ODD]
        found += [join(_with(header, entry, text), body) for text in inner]
    return found


def _with(header: dict[str, Any], entry: str, text: bytes) -> dict[str, Any]:
    return {**header, "__metadata__": {**header["__metadata__"], entry: text.decode("utf-8", "replace")}}


def _retyped(names: Sequence[str], about: Any) -> Inputs:
    """Whole files whose tensors have the right names, mostly, and any type and shape."""
    spec = st.tuples(st.sampled_from(sorted(_BITS)), st.lists(st.integers(0, 4), max_size=4))
    also = st.dictionaries(st.sampled_from(["x", "", "change/x", "a/b/c", "/", "state/"]), spec, max_size=2)
    given = st.fixed_dictionaries({}, optional=dict.fromkeys(names, spec))
    return st.builds(lambda one, other: _whole({**one, **other}, about), given, also)


def _whole(specs: _Specs, about: Any) -> bytes:
    header: dict[str, Any] = {"__metadata__": about} if about is not None else {}
    start = 0
    for name, (kind, shape) in specs.items():
        end = start + math.ceil(math.prod(shape) * _BITS[kind] / 8)
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [start, end]}
        start = end
    return join(header, bytes(range(1, 256)) * (start // 255) + b"\x3f" * (start % 255))
