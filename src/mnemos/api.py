"""The Python interface: what the command line does, as functions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mnemos.experiment import Experiment, load_experiment
from mnemos.runs import compare as comparing
from mnemos.runs import execute
from mnemos.runs.run import Run


def run(
    experiment: Experiment | Mapping[str, Any] | str | Path | None = None,
    changes: Mapping[str, Any] | None = None,
    *,
    out: str | Path = "runs",
    observer: execute.Observer | None = None,
) -> Run:
    """Carry out an experiment (a YAML file, a mapping, or nothing for the defaults), with dotted changes."""
    return execute.start(load_experiment(experiment, changes), Path(out), observer)


def resume(path: str | Path, rounds: int | None = None, *, observer: execute.Observer | None = None) -> Run:
    """Continue an interrupted run, or a finished one until a later round."""
    return execute.resume(path, rounds, observer)


def compare(
    recipe: str | Path | Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    *,
    out: str | Path = "runs",
) -> comparing.Compared:
    """Carry out a comparison: a base experiment, its variants, and several seeds."""
    given = recipe if isinstance(recipe, str | Path) else dict(recipe)
    comparison = comparing.Comparison.read(given, changes or {})
    return comparing.carry_out(comparison, Path(out), lambda _name, _seed: execute.Silent())
