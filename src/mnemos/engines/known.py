"""Which engine was the fastest for which kind of work, kept between runs in the cache folder."""

from __future__ import annotations

import os
import shutil

from mnemos.data.folder import recall, remember
from mnemos.engines.engine import Engine, engines
from mnemos.errors import ConfigError

_MEMORY = "engines.json"
"""The file of the cache folder that says which engine is the fastest for which work."""
_KNOWN = ("serial", "threads", "vmap")
"""The engines that are looked for in the file: it is not a place from which other code is imported."""


def recall_engine(key: str) -> Engine:
    """The engine that was the fastest for a kind of work; a ConfigError if there is none that fits."""
    known = recall(_MEMORY, key)
    if not isinstance(known, dict) or known.get("name") not in _KNOWN:
        raise ConfigError("no engine is known")
    if known.get("compile") and not _has_compiler():
        raise ConfigError("the engine that is known needs a compiler")
    return engines.parse(known)


def remember_fastest(key: str, engine: Engine) -> None:
    """Keep the engine for later runs of the same kind of work."""
    remember(_MEMORY, key, engine.dump())


def want_compiled(key: str) -> None:
    """Keep in mind that compiled engines are worth a trial for a kind of work, now or beside a later run."""
    remember(_MEMORY, _tried(key), False)


def compiled_wanted(key: str) -> bool:
    """Whether compiled engines are worth a trial that wasn't finished yet, and can be tried."""
    return recall(_MEMORY, _tried(key)) is False and _has_compiler()


def compiled_tried(key: str) -> None:
    """Keep in mind that compiled engines have been tried."""
    remember(_MEMORY, _tried(key), True)


def _tried(key: str) -> str:
    """Where it is kept whether compiled engines were tried for a kind of work."""
    return f"{key} compiled"


def _has_compiler() -> bool:
    """Whether there is a C++ compiler, which compiled models need on a CPU."""
    return shutil.which(os.environ.get("CXX") or "g++") is not None
