"""The processor cores that Mnemos uses."""

from __future__ import annotations

import os

from mnemos.cli.doctor.finding import Problem, Section
from mnemos.common.cores import VARIABLE, cores
from mnemos.errors import ConfigError


def examine_machine() -> Section:
    """How many cores there are, and how many of them are used."""
    section = Section("machine")
    given, there = os.environ.get(VARIABLE), os.cpu_count()
    try:
        used: int | None = cores()
        text = f"{used} of {there}" + (f" ({VARIABLE}={given})" if given else "")
    except ConfigError as error:
        used, text = None, f"{VARIABLE}={given}"
        do = f"set {VARIABLE} to a whole number ≥ 1, or unset it"
        section.problems.append(Problem(str(error), do, broken=True))
    section.lines = [("cores", text)]
    section.facts = {"cores": used, "cores_there": there, VARIABLE: given}
    return section
