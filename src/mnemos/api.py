"""The Python interface: what the command line does, as functions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mnemos.display.study import overview
from mnemos.display.watch import watch
from mnemos.experiment.experiment import Experiment, load_experiment
from mnemos.measures.measure import measures as known
from mnemos.runs import branch as branches
from mnemos.runs import execute, replay
from mnemos.runs.branch import Branching
from mnemos.runs.replay import PlayedRound
from mnemos.runs.run import Run
from mnemos.runs.trust import Trust
from mnemos.runs.why import ask
from mnemos.runs.why.answer import Answer
from mnemos.runs.why.ask import Question
from mnemos.studies import pool
from mnemos.studies.advise.advice import Advice
from mnemos.studies.advise.advice import advise as give_advice
from mnemos.studies.advise.budget import parse_budget
from mnemos.studies.advise.description import Described, FederationDescription, base_of
from mnemos.studies.advise.description import describe as described_federation
from mnemos.studies.advise.search import SearchGoal
from mnemos.studies.advise.space import default_space
from mnemos.studies.advise.tuning import goal_of
from mnemos.studies.results import Results
from mnemos.studies.study import Case, Study
from mnemos.track.observe import Spec, observe


def run(
    experiment: Experiment | Mapping[str, Any] | str | Path | None = None,
    changes: Mapping[str, Any] | None = None,
    *,
    out: str | Path = "runs",
    observer: execute.Observer | bool = True,
    track: Iterable[Spec] = (),
) -> Run:
    """Run an experiment and return the run, whose directory is made in `out`.

    `experiment` is an Experiment, a mapping, the path of a YAML file, or None for the defaults; `changes` are
    applied to it, with dotted names: {"local.lr": 0.1}. `track` names sinks that get the results too, such
    as `csv` or `wandb:project=x`.

    Progress and warnings are shown on standard error, as on the command line. `observer=False` shows nothing,
    and so does MNEMOS_QUIET=1 in the environment; an observer of your own is told about every round instead.
    """
    described = load_experiment(experiment, changes)
    return execute.start(described, Path(out), observe(_watching(observer), track))


def resume(
    path: str | Path,
    rounds: int | None = None,
    *,
    observer: execute.Observer | bool = True,
    track: Iterable[Spec] = (),
    trust: Trust = False,
    device: str | Sequence[str] | None = None,
) -> Run:
    """Continue an interrupted run, or a finished one until round `rounds`, and return it.

    It goes on with the devices that it was made on, or with those that `device` names: then last bits differ
    from there on. `observer` and `track` are as in `run`.

    A run that comes from another person may name code by import path. Such code is imported only if it is
    trusted: `trust=True` trusts all of it, a collection of import paths trusts these. Code that you have run
    here before needs no trust.
    """
    devices = device if device is None or isinstance(device, str) else list(device)
    return execute.resume(path, rounds, observe(_watching(observer), track), trust=trust, device=devices)


def play_round(
    path: str | Path, round: int, measures: Sequence[str | Mapping[str, Any]] = (), *, trust: Trust = False
) -> PlayedRound:
    """Play a round of a run again, bit for bit, and return its records and its model.

    It begins at the nearest checkpoint that the run has kept (`checkpoints.keep`), or at the start.
    `measures` are names, or mappings with options, of measures that the run wasn't asked for. A `DataError`
    says if the round doesn't give what the run has recorded. `trust` is as in `resume`.
    """
    return replay.play_round(Run.at(path), round, [known.parse(measure) for measure in measures], trust=trust)


def why(path: str | Path, question: Question | None = None, *, trust: Trust = False) -> Answer:
    """Say why a run's model has lost a class or a task: in which rounds, where in them, by whose updates.

    `question` narrows it down: `Question(cls=7, rounds=(30, 60))`; by default it is about the class that has
    lost most. Rounds are played again where the run has recorded no ledger. `trust` is as in `resume`.
    """
    return ask.why(Run.at(path), question or Question(), trust=trust)


def branch(
    path: str | Path,
    at: Branching,
    *,
    out: str | Path | None = None,
    observer: execute.Observer | None = None,
    trust: Trust = False,
) -> Run:
    """Branch off a run: make a new one that goes on from a round of it, with something changed.

    `at` says from where, and what: `Branching(36, {"method.loss": "wsm"}, without=(12,), rounds=20)`. The new
    run's directory is made in `out`, or beside the other's; it names its parent in parent.json. Without
    changes it ends like its parent, bit for bit. `trust` is as in `resume`.
    """
    parent = Run.at(path)
    folder = parent.path.parent if out is None else Path(out)
    return branches.branch(parent, at, folder, observe(observer, ()), trust=trust)


def compare(
    recipe: str | Path | Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    *,
    out: str | Path = "runs",
    observer: Callable[[Case], execute.Observer] | bool = True,
) -> Results:
    """Run the cases of a study one after another in this process, and return their results.

    Runs that are in `out` already aren't run again. The first error ends the study. `observer` is as in
    `run`; one of your own is a function that makes the observer of a case.
    """

    def of(case: Case) -> execute.Observer:
        chosen = observer if isinstance(observer, bool) else observer(case)
        return _watching(chosen, str(case)) or execute.Silent()

    return pool.in_turn(Study.read(recipe, changes).cases(), Path(out), of, name=_name(recipe))


def sweep(
    recipe: str | Path | Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    *,
    out: str | Path = "runs",
    jobs: int | None = None,
    seeds: Sequence[int] | None = None,
    view: pool.StudyView | bool = True,
) -> Results:
    """Run the cases of a study, `jobs` at a time in processes of their own, and return their results.

    If `jobs` is None, as many as there are cores or devices; small runs share processes and train together.
    Runs that are in `out` already aren't run again. A run that fails is marked as failed, and the others go
    on. `seeds` replaces the recipe's seeds. Progress and warnings are shown as by `run`, unless `view` is
    False; a view of your own is told when a run begins, ends, or has done a round.
    """
    cases = Study.read(recipe, changes, seeds).cases()
    shown = overview(quiet=_quiet() or not view) if isinstance(view, bool) else view
    return pool.carry_out(cases, Path(out), jobs=jobs, view=shown, name=_name(recipe))


def describe_federation(
    experiment: Described = None, changes: Mapping[str, Any] | None = None
) -> FederationDescription:
    """What the federation of an experiment, or of a study's base, is like; nothing is trained.

    `print` shows it in words, `.facts` has all numbers by name. The arguments are as in `run`.
    """
    return described_federation(base_of(experiment, changes))


def advise(
    experiment: Described = None,
    changes: Mapping[str, Any] | None = None,
    *,
    budget: str = "20m",
    out: str | Path = "runs/advise",
    forgetting: float = 0.0,
    view: bool = True,
) -> Advice:
    """Find out by short pilots which method, loss and rate (and norm) to take for a federation.

    `budget` is the time for all pilots, over all calls with the same `out`, where they are kept: called
    again, it goes on. Pilots are judged on validation data: by accuracy, minus `forgetting` times what
    clients forget. The result has the finalists in order, and `out` has winner.yaml, to be run. Progress is
    shown as by `run`, unless `view` is False.
    """
    seconds, base = parse_budget(budget), base_of(experiment, changes)
    seeds = (base.seed + 1, base.seed + 2, base.seed + 3)
    goal = SearchGoal(base, default_space(base), seeds, forgetting)
    return give_advice(goal, Path(out), seconds, _saying(view))


def tune(
    recipe: str | Path | Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    *,
    budget: str = "20m",
    out: str | Path = "runs/tune",
    forgetting: float = 0.0,
    view: bool = True,
) -> Advice:
    """Search the space of a study (its grid, random fields, list or variants) as `advise` does its own."""
    seconds = parse_budget(budget)
    goal = goal_of(Study.read(recipe, changes), forgetting)
    return give_advice(goal, Path(out), seconds, _saying(view))


def _saying(view: bool) -> Callable[[str], None] | None:
    """What prints a sentence about each pilot; None if nothing is to be shown."""
    return (lambda sentence: print(sentence, file=sys.stderr)) if view and not _quiet() else None  # noqa: T201


def _watching(observer: execute.Observer | bool, label: str = "") -> execute.Observer | None:
    """The user's observer, or a display of the run; None if nothing is to be shown."""
    if not isinstance(observer, bool):
        return observer
    return watch(label=label) if observer and not _quiet() else None


def _quiet() -> bool:
    """Whether the environment asks for silence."""
    return os.environ.get("MNEMOS_QUIET") == "1"


def _name(recipe: str | Path | Mapping[str, Any]) -> str:
    """The name under which a study is recorded: its file's, without the ending."""
    return "study" if isinstance(recipe, Mapping) else Path(recipe).stem
