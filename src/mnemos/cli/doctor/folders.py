"""The folders of data sets and caches, and which data sets are there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import ModuleType

from mnemos.cli.doctor.finding import Problem, Section, size
from mnemos.data.folder import VARIABLE, cache_folder, data_folder
from mnemos.errors import MnemosError

_LITTLE = 1e9
"""Bytes of free disk space below which there is a problem."""


def examine_folders(torch: ModuleType | None) -> Section:
    """The folders and the data sets in them; which those are isn't known without PyTorch."""
    section = Section("folders")
    try:
        data = data_folder()
    except MnemosError as error:
        section.problems.append(Problem(str(error), f"set {VARIABLE} to a folder", broken=True))
        return section
    if os.environ.get(VARIABLE) and not _is_folder(data):
        do = f"create the folder, or set {VARIABLE} to the one that has the data sets"
        section.problems.append(Problem(f"{VARIABLE} names {data}, which is no folder", do))
    cache = cache_folder()
    section.lines = [("data", _described(data)), ("cache", _described(cache))]
    section.facts = {"data": str(data), "cache": str(cache)}
    if torch is not None:
        try:
            _list(_data_sets(), section)
        except OSError as error:
            what = f"{data} can't be read ({error.strerror})"
            section.problems.append(Problem(what, f"change its permissions, or set {VARIABLE} to another"))
    for folder in dict.fromkeys((data, cache)):
        section.problems += _problems(folder)
    return section


def _list(sets: dict[str, bool], section: Section) -> None:
    """Add the data sets that are there, and those that aren't."""
    section.facts["data_sets"] = sets
    there = [name for name, found in sets.items() if found]
    section.lines.append(("data sets", ", ".join(["digits (embedded)", *there])))
    absent = [name for name, found in sets.items() if not found]
    if absent:
        section.lines.append(("not there", f"{', '.join(absent)} (docs/guides/data.md)"))


def _data_sets() -> dict[str, bool]:
    """The published data sets, and whether their files are in the data folder."""
    from mnemos.data.dataset import sources  # which imports PyTorch

    return {source.name: there for source in sources if (there := source.is_there()) is not None}


def _described(folder: Path) -> str:
    near = _nearest(folder)
    state = "" if _is_folder(folder) else "not created yet; "
    return f"{folder} ({state}{size(shutil.disk_usage(near).free)} free)"


def _problems(folder: Path) -> list[Problem]:
    near, found = _nearest(folder), []
    if not _is_folder(near) or not os.access(near, os.W_OK | os.X_OK):
        do = "change its permissions, or name other folders by MNEMOS_DATA and MNEMOS_CACHE"
        found.append(Problem(f"{folder} can't be written ({near} doesn't allow it)", do))
    if (free := shutil.disk_usage(near).free) < _LITTLE:
        found.append(Problem(f"{folder} has {size(free)} of disk space left", "free some"))
    return found


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest above it that there is."""
    # Unlike `exists`, `access` raises no error for a folder that can't be looked into.
    above = (folder, *folder.absolute().parents)
    return next((path for path in above if os.access(path, os.F_OK)), Path(folder.anchor or "/"))


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False
