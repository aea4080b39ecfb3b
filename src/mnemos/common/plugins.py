"""Parts that installed packages offer by a name of their own: plug-ins.

A package declares them as entry points, in a group for each kind of part: `mnemos.losses`, `mnemos.methods`,
… An entry point's name is the part's name, and its value is the part's class. The class is imported when the
name is used, not before.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from mnemos.errors import ConfigError

PREFIX = "mnemos."
"""What the names of the groups begin with."""


def plugins(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """The entry points of a group, such as `losses`, by name; usually there is one for each name."""
    return _found(tuple(sys.path)).get(group, {})


def name_of(path: str) -> str | None:
    """The name under which a package offers the class of an import path; None if none or several do."""
    names = {
        name
        for group in _found(tuple(sys.path)).values()
        for name, points in group.items()
        if any(point.value == path for point in points)
    }
    return names.pop() if len(names) == 1 else None


def package_of(point: EntryPoint) -> str:
    """The name and version of the installed package that an entry point is from."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"


def load(kind: str, name: str, points: tuple[EntryPoint, ...]) -> object:
    """What a plug-in's entry point names; a ConfigError if it can't be imported or is ambiguous."""
    if len({point.value for point in points}) > 1:
        packages = " and ".join(map(package_of, points))
        raise ConfigError(f"the {kind} '{name}' is offered by several packages ({packages}); uninstall one")
    point = points[0]
    try:
        return point.load()
    except Exception as error:  # whatever the package does while it is imported
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ConfigError(
            f"the {kind} '{name}' of the package {package_of(point)} can't be imported ({reason})"
        ) from error


@cache
def _found(_path: tuple[str, ...]) -> Mapping[str, Mapping[str, tuple[EntryPoint, ...]]]:
    """All plug-ins by group and name; they are looked for again when the search path changes."""
    found: dict[str, dict[str, tuple[EntryPoint, ...]]] = {}
    every = entry_points()
    for group in every.groups:
        if group.startswith(PREFIX):
            named = found.setdefault(group.removeprefix(PREFIX), {})
            for point in every.select(group=group):
                named[point.name] = (*named.get(point.name, ()), point)
    return found
