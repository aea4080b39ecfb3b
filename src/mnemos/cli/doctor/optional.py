"""Extras: optional packages that are installed or missing, and what the tests need beside them."""

from __future__ import annotations

import os
import shutil

from mnemos.cli.doctor.finding import Problem, Section
from mnemos.cli.doctor.versions import installed
from mnemos.common.extras import EXTRAS, install_line

_TESTS = "pytest"
"""Where this package is, tests are run."""


def examine_extras() -> Section:
    """Which extras are installed; those that aren't, with the line that installs them."""
    section = Section("extras")
    found = {
        extra: [package for package in packages if installed(package)] for extra, packages in EXTRAS.items()
    }
    section.facts = {
        "extras": {extra: len(there) == len(EXTRAS[extra]) for extra, there in found.items()},
        "install": {extra: install_line(extra) for extra in EXTRAS},
    }
    for extra, there in found.items():
        versions = ", ".join(f"{package} {installed(package)}" for package in there)
        absent = [package for package in EXTRAS[extra] if package not in there]
        missing = f"without {', '.join(absent)}: {install_line(extra)}" if absent else ""
        section.lines.append((extra, "; ".join(filter(None, [versions, missing]))))
    return section


def examine_tools() -> Section:
    """The programs that the tests need; none where there are no tests."""
    section = Section("tests", facts={"tools": {}})
    if installed(_TESTS) is None:
        return section
    for name, variable, default in (
        ("chromium", "MNEMOS_CHROMIUM", "chromium"),
        ("compiler", "CXX", "g++"),
    ):
        path = shutil.which(os.environ.get(variable) or default)
        section.facts["tools"][name] = path
        section.lines.append((name, path or "missing"))
        if path is None:
            what = f"there is no {os.environ.get(variable) or default}, which some tests need"
            section.problems.append(Problem(what, f"make {name}, or set {variable} to its path"))
    return section
