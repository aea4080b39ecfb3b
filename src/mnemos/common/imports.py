"""Code that is named by import path, `package.module:attribute`, and which of it may be imported.

Importing a module runs it. Reading an experiment to display it therefore imports nothing (`showing`), a plan
from another machine may only name parts of Mnemos (`by_name_alone`), and of the code that a run's directory
names only trusted paths are imported (`only`).
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from mnemos.errors import ConfigError


@dataclass(frozen=True)
class Named:
    """The import paths that were met while an experiment was read."""

    left: set[str]
    """Those that were not imported."""
    uses: set[tuple[str, str]]
    """All of them, each with the options that it is used with, as JSON."""


@dataclass(frozen=True)
class _Limits:
    """What may be imported by path."""

    paths: Collection[str] = ()
    refuses: bool = False
    """Whether any other path is an error. Otherwise its part is shown without being imported."""
    shows_unknown: bool = False
    """Whether parts with an unknown name are shown as well."""
    named: Named = field(default_factory=lambda: Named(set(), set()))


_limits: ContextVar[_Limits | None] = ContextVar("limits", default=None)
_folders: list[str] = []
"""The folder that is searched for modules first: a list of one, or empty."""


@contextmanager
def by_name_alone() -> Iterator[None]:
    """Refuse all import paths, because the experiment comes from another machine."""
    with _limited(_Limits(refuses=True)):
        yield


@contextmanager
def showing() -> Iterator[Named]:
    """Import nothing: parts that aren't Mnemos's own are shown by name and options."""
    with _limited(_Limits(shows_unknown=True)) as named:
        yield named


@contextmanager
def only(paths: Collection[str]) -> Iterator[Named]:
    """Import only these paths: parts of other paths are shown by name and options."""
    with _limited(_Limits(paths)) as named:
        yield named


@contextmanager
def _limited(limits: _Limits) -> Iterator[Named]:
    before = _limits.set(limits)
    try:
        yield limits.named
    finally:
        _limits.reset(before)


def note(path: str, options: Mapping[str, Any]) -> None:
    """Record that an import path is used with some options."""
    limits = _limits.get()
    if limits is not None:
        limits.named.uses.add((path, json.dumps(options, sort_keys=True, default=str)))
        if path not in limits.paths:
            limits.named.left.add(path)


def is_shown(name: str) -> bool:
    """Whether the part of this name, which isn't Mnemos's own, is shown instead of imported."""
    limits = _limits.get()
    if limits is None or limits.refuses or name in limits.paths:
        return False
    if ":" not in name and not limits.shows_unknown:
        return False
    limits.named.left.add(name)
    return True


def import_path(path: str, kind: str) -> Any:
    """The object named by `package.module:attribute`."""
    limits = _limits.get()
    if limits is not None and path not in limits.paths:
        raise ConfigError(f"the {kind} '{path}' is named by import path, which isn't allowed here")
    module_name, _, attribute = path.partition(":")
    # Not earlier: before a user's code is named, no file of the folder may shadow a library.
    sys.path[:0] = [folder for folder in _folders if folder not in sys.path]
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"the {kind} '{path}' can't be imported ({error})") from None
    except Exception as error:  # whatever the user's module does while it is imported
        reason = (str(error) or "no reason given").splitlines()[0]
        raise ConfigError(
            f"the {kind} '{path}' can't be imported ({type(error).__name__}: {reason})"
        ) from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise ConfigError(f"the {kind} '{path}' can't be found: {module_name} has no '{attribute}'") from None


def look_in(folder: str) -> None:
    """Search this folder for modules first, from the next import by path on."""
    _folders[:] = [folder]


def origin(path: str) -> str | None:
    """The file that `import_path` would run, found without running it; None if it can't be known."""
    name = path.partition(":")[0]
    if name in sys.modules:
        module = sys.modules[name]
        file = getattr(module, "__file__", None)
        return str(Path(file).absolute()) if file else _location(getattr(module, "__spec__", None))
    spec, within = None, None
    steps = name.split(".")
    for count in range(1, len(steps) + 1):
        spec = _find(".".join(steps[:count]), within)
        if spec is None:
            return None
        within = spec.submodule_search_locations or []
    return _location(spec)


def _location(spec: ModuleSpec | None) -> str | None:
    """A module's file, or "built-in"; None if it isn't known."""
    if spec is None or spec.origin is None:
        return None
    return str(Path(spec.origin).absolute()) if spec.has_location else spec.origin


def _find(name: str, within: Any) -> ModuleSpec | None:
    """The specification of a module, by the import system's own finders, which run no code of the module."""
    anywhere = [*_folders, *sys.path]
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, anywhere if within is None and finder is PathFinder else within)
        except (ImportError, ValueError, OSError):
            return None
        if spec is not None:
            return spec
    return None
