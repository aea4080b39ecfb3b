"""The Python interface: what the command line does, as functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mnemos.experiment import Experiment, load_experiment
from mnemos.runs import execute, pool
from mnemos.runs.results import Results
from mnemos.runs.run import Run
from mnemos.runs.study import Study
from mnemos.track.observe import Spec, observe


def run(
    experiment: Experiment | Mapping[str, Any] | str | Path | None = None,
    changes: Mapping[str, Any] | None = None,
    *,
    out: str | Path = "runs",
    observer: execute.Observer | None = None,
    track: Iterable[Spec] = (),
) -> Run:
    """Carry out an experiment (a YAML file, a mapping, or nothing for the defaults), with dotted changes.

    Sinks such as `csv` or `wandb:project=x` in `track` get its results too.
    """
    return execute.start(load_experiment(experiment, changes), Path(out), observe(observer, track))


def resume(
    path: str | Path,
    rounds: int | None = None,
    *,
    observer: execute.Observer | None = None,
    track: Iterable[Spec] = (),
) -> Run:
    """Continue an interrupted run, or a finished one until a later round."""
    return execute.resume(path, rounds, observe(observer, track))


def compare(
    recipe: str | Path | Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    *,
    out: str | Path = "runs",
) -> Results:
    """Carry out a study in this process, one run after the other; an error ends it."""
    cases = Study.read(recipe, changes).cases()
    return pool.in_turn(cases, Path(out), lambda _case: execute.Silent(), name=_name(recipe))


def sweep(
    recipe: str | Path | Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    *,
    out: str | Path = "runs",
    jobs: int | None = None,
    seeds: Sequence[int] | None = None,
    view: pool.View | None = None,
) -> Results:
    """Carry out a study, several runs at once in processes of their own; runs that fail are marked."""
    cases = Study.read(recipe, changes, seeds).cases()
    return pool.carry_out(cases, Path(out), jobs=jobs, view=view, name=_name(recipe))


def _name(recipe: str | Path | Mapping[str, Any]) -> str:
    """What a study is recorded as."""
    return "study" if isinstance(recipe, Mapping) else Path(recipe).stem
