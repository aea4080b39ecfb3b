"""The Python interface: what the command line does, as functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mnemos.experiment.experiment import Experiment, load_experiment
from mnemos.runs import execute
from mnemos.runs.run import Run
from mnemos.runs.trust import Trust
from mnemos.studies import pool
from mnemos.studies.results import Results
from mnemos.studies.study import Study
from mnemos.track.observe import Spec, observe


def run(
    experiment: Experiment | Mapping[str, Any] | str | Path | None = None,
    changes: Mapping[str, Any] | None = None,
    *,
    out: str | Path = "runs",
    observer: execute.Observer | None = None,
    track: Iterable[Spec] = (),
) -> Run:
    """Run an experiment and return the run, whose directory is made in `out`.

    `experiment` is an Experiment, a mapping, the path of a YAML file, or None for the defaults; `changes` are
    applied to it, with dotted names: {"local.lr": 0.1}. `observer` is told about every round. `track` names
    sinks that get the results too, such as `csv` or `wandb:project=x`.
    """
    return execute.start(load_experiment(experiment, changes), Path(out), observe(observer, track))


def resume(
    path: str | Path,
    rounds: int | None = None,
    *,
    observer: execute.Observer | None = None,
    track: Iterable[Spec] = (),
    trust: Trust = False,
    device: str | Sequence[str] | None = None,
) -> Run:
    """Continue an interrupted run, or a finished one until round `rounds`, and return it.

    It goes on with the devices that it was made on, or with those that `device` names: then last bits differ
    from there on.

    A run that comes from another person may name code by import path. Such code is imported only if it is
    trusted: `trust=True` trusts all of it, a collection of import paths trusts these. Code that you have run
    here before needs no trust.
    """
    devices = device if device is None or isinstance(device, str) else list(device)
    return execute.resume(path, rounds, observe(observer, track), trust=trust, device=devices)


def compare(
    recipe: str | Path | Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    *,
    out: str | Path = "runs",
) -> Results:
    """Run the cases of a study one after another in this process, and return their results.

    Runs that are in `out` already aren't run again. The first error ends the study.
    """
    cases = Study.read(recipe, changes).cases()
    return pool.in_turn(cases, Path(out), lambda _case: execute.Silent(), name=_name(recipe))


def sweep(
    recipe: str | Path | Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    *,
    out: str | Path = "runs",
    jobs: int | None = None,
    seeds: Sequence[int] | None = None,
    view: pool.StudyView | None = None,
) -> Results:
    """Run the cases of a study, `jobs` at a time in processes of their own, and return their results.

    Runs that are in `out` already aren't run again. A run that fails is marked as failed, and the others go
    on. `seeds` replaces the recipe's seeds; `view` is told when a run begins, ends, or has done a round.
    """
    cases = Study.read(recipe, changes, seeds).cases()
    return pool.carry_out(cases, Path(out), jobs=jobs, view=view, name=_name(recipe))


def _name(recipe: str | Path | Mapping[str, Any]) -> str:
    """The name under which a study is recorded: its file's, without the ending."""
    return "study" if isinstance(recipe, Mapping) else Path(recipe).stem
