"""The runs that decide the claims, one after the other, in the order of docs/results/claims/order.yaml.

It can be ended at any moment and started again: what is finished isn't run again, and what was interrupted
goes on.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
import yaml
from pydantic import Field

from claim_runs import FOLDER, RECORD, Line, commit, read_lines
from mnemos.common.cores import VARIABLE
from mnemos.common.registry import Options
from mnemos.errors import MnemosError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Outcome
from mnemos.runs.directory import Status
from mnemos.runs.execute import Silent
from mnemos.runs.find import find
from mnemos.runs.run import Run
from mnemos.studies.perform import perform
from mnemos.studies.reproduce.catalogue import find_recipe
from mnemos.studies.reproduce.cell import choose
from mnemos.studies.study import Case

ORDER = FOLDER / "order.yaml"
_OFTEN = 60.0
"""Processor seconds after which the cost so far is written down, as a process that is killed can't do it."""

Say = Callable[[str], None]


class Step(Options):
    """Some cells of a recipe for some seeds."""

    recipe: str
    only: tuple[str, ...] = ()
    """As in `mnemos reproduce --only`; all cells without it."""
    seeds: tuple[int, ...] = Field(min_length=1)
    waits: str = ""
    """Why it can't be run yet."""

    def cases(self) -> list[Case]:
        """Its runs, seed by seed: effects of a seed are known before the next one is begun."""
        cells = choose(find_recipe(self.recipe)[1].of(None), self.only)
        return [
            Case(f"{self.recipe}: {cell.name}", case.experiment)
            for seed in self.seeds
            for cell in cells
            for case in cell.cases([seed])
        ]


def read_order(path: Path = ORDER) -> list[Step]:
    """The steps, in their order."""
    return [Step.parse(entry) for entry in yaml.safe_load(path.read_text())]


def pending(steps: Iterable[Step], folder: Path, lines: Sequence[Line]) -> list[Case]:
    """What neither the file of results nor the folder has to its end, each experiment once.

    Results are known by cell and seed, as hashes change with every new option of experiments. So a line of
    results has to be removed if its cell's setting is changed.
    """
    known = {(cell, line["seed"]) for line in lines for cell in line["cells"]}
    seen, left = set[str](), []
    for case in [case for step in steps if not step.waits for case in step.cases()]:
        key = case.experiment.hash()
        if key in seen or (case.variant, case.experiment.seed) in known:
            continue
        seen.add(key)
        run = find(case.experiment, folder)
        if run is None or not run.ended:
            left.append(case)
    return left


class _Meter(Silent):
    """Writes down what a run costs, and ends it when the time is up."""

    def __init__(self, folder: Path, experiment: Experiment, until: float) -> None:
        super().__init__()
        self._record = folder / RECORD
        self._hash = experiment.hash()
        self._until = until
        self._mark = time.process_time()

    def write(self, **facts: object) -> None:
        """A line with the processor seconds since the last one."""
        now = time.process_time()
        cost = {"hash": self._hash, "commit": commit(), "cpu_seconds": round(now - self._mark, 2)}
        self._mark = now
        with self._record.open("a") as file:
            file.write(json.dumps({**cost, **facts}) + "\n")

    def round(self, outcome: Outcome) -> None:
        """Look at both clocks."""
        if time.process_time() - self._mark > _OFTEN:
            self.write()
        if self.is_late():
            raise KeyboardInterrupt

    def is_late(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self._until

    def ended(self, run: Run, status: Status) -> None:
        """How it ended, however it did."""
        self.write(status=status.status, rounds=status.rounds)


def work(
    folder: Path,
    hours: float | None = None,
    only: str | None = None,
    *,
    say: Say,
    order: Path = ORDER,
    lines: Path | None = None,
) -> int:
    """Carry out what is left, for so many hours at most; the number of runs that came to their end.

    One run at a time, in this process and on one core. Order, recipes and results are read anew before each
    run: they may be changed meanwhile.
    """
    until = math.inf if hours is None else time.monotonic() + 3600 * hours
    os.environ[VARIABLE] = "1"
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    commit()  # of the sources that are imported now: the working copy may be changed later
    done, failed = 0, set[str]()
    while time.monotonic() < until:
        steps = [step for step in read_order(order) if only in (None, step.recipe)]
        known = read_lines(lines) if lines else read_lines()
        left = [one for one in pending(steps, folder, known) if one.experiment.hash() not in failed]
        if not left:
            break
        case = left[0]
        say(f"{time.strftime('%Y-%m-%d %H:%M')}  {case} ({len(left)} left)")
        before = time.process_time()
        try:
            run = perform(case.experiment, folder, _Meter(folder, case.experiment, until))
        except KeyboardInterrupt:
            say("interrupted; started again, it goes on from here")
            break
        except MnemosError as error:
            failed.add(case.experiment.hash())
            say(f"  failed: {error}")
            continue
        done += 1
        accuracy = "" if run.accuracy is None else f", accuracy {100 * run.accuracy:.1f} %"
        say(f"  {run.status.status}{accuracy}, {time.process_time() - before:.0f} processor seconds")
    for step in (step for step in read_order(order) if step.waits and only in (None, step.recipe)):
        say(f"waits: {step.recipe} ({step.waits})")
    return done
