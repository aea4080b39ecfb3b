"""The engine that is fastest here: timed on the first cohort, or remembered from an earlier run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import time
from collections.abc import Iterable, Iterator

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from mnemos.client import fresh_model
from mnemos.cores import cores
from mnemos.data.dataset import Dataset
from mnemos.data.folder import recall, remember
from mnemos.engines.engine import Engine, Lost, Runner, Work, engines
from mnemos.engines.serial import Serial
from mnemos.engines.threads import Threads, one_by_one
from mnemos.engines.vmap import Vmap
from mnemos.errors import MnemosError
from mnemos.message import Arithmetic, Plan, Task
from mnemos.methods.exchange import Update
from mnemos.version import __version__

_MEMORY = "engines.json"
_LONG = 600.0
"""Seconds of training from which on compiling, which takes a minute or two, is worth a trial."""


@engines.register("auto")
class Auto(Engine):
    """Times the candidates on the first cohort, says which it took and why, and remembers it."""

    def open(self, plan: Plan, dataset: Dataset, work: Work) -> Runner:
        """A runner that makes its choice when it sees the first cohort."""
        return AutoRunner(self, plan, dataset, work)


class AutoRunner(Runner):
    """The runner of whatever engine is chosen."""

    def __init__(self, engine: Engine, plan: Plan, dataset: Dataset, work: Work) -> None:
        super().__init__(engine, plan)
        self._dataset = dataset
        self._work = work
        self._chosen: Runner | None = None

    def run(self, cohort: Iterable[Task]) -> Iterator[Update | Lost]:
        """The updates of a cohort, by the engine chosen."""
        if self._chosen is None:
            cohort = list(cohort)
            if not cohort:  # nobody trains in this round: there is nothing to choose by
                return
            self._choose(cohort)
            cohort = [dataclasses.replace(task, plan=self.plan) for task in cohort]
        assert self._chosen is not None
        yield from self._chosen.run(cohort)

    def close(self) -> None:
        """Close what was opened."""
        if self._chosen is not None:
            self._chosen.close()

    def _choose(self, cohort: list[Task]) -> None:
        key = self._key(cohort)
        try:
            self._take(engines.parse(recall(_MEMORY, key)), "remembered from an earlier run")
        except MnemosError:  # nothing remembered, or nothing that fits any more
            engine, why = self._measure(cohort)
            remember(_MEMORY, key, engine.dump())
            self._take(engine, why)

    def _take(self, engine: Engine, why: str) -> None:
        self._chosen = engine.open(self.plan, self._dataset, self._work)
        self.engine, self.why, self.plan = engine, why, self._chosen.plan

    def _measure(self, cohort: list[Task]) -> tuple[Engine, str]:
        """The candidate that will be through first, and the figures that say so."""
        available = cores()
        trials: list[_Trial] = []
        for engine in self._candidates():
            self._try(engine, cohort, trials)
        vmapped = [trial for trial in trials if trial.label == "vmap"]
        if vmapped and available > 1 and vmapped[0].step < 2 * min(trial.step for trial in trials):
            self._try(Vmap(intra_op=available), cohort, trials)
        steps = sum(self._steps(task) for task in cohort) * self._work.rounds
        module = fresh_model(self.plan, self._dataset)
        if (
            min(trial.step for trial in trials) * steps > _LONG
            and not self.engine.exact
            and _has_conv(module)
        ):
            for engine in (Threads(compile=True), Serial(compile=True, intra_op=available)):
                self._try(engine, cohort, trials)
        best = min(trials, key=lambda trial: trial.handicap * trial.step * steps + trial.compiling)
        return best.engine, "a client's step takes " + ", ".join(map(str, trials))

    def _steps(self, task: Task) -> int:
        local = self.plan.local
        return local.steps or local.epochs * -(-len(task.samples) // local.batch)

    def _candidates(self) -> list[Engine]:
        exact = self.engine.exact
        found = [one_by_one(self._work, exact)]
        return [*found, Vmap()] if self.plan.local.optimizer.vectorised and not exact else found

    def _try(self, engine: Engine, cohort: list[Task], trials: list[_Trial]) -> None:
        try:
            with engine.open(self.plan, self._dataset, self._work) as runner:
                trials.append(_Trial(engine, *_time(runner, cohort)))
        except (MnemosError, RuntimeError):
            if not trials:  # the first candidate runs everything: its error is the user's to see
                raise
            # Others may not be for this model (vmap and dropout) or machine (no compiler): they drop out.

    def _key(self, cohort: list[Task]) -> str:
        """Everything a choice depends on; sizes to the next power of two."""
        plan = self.plan.model_dump(mode="json")
        del plan["seed"]
        machine = [platform.node(), platform.processor(), cores(), torch.__version__]
        samples = max(len(task.samples) for task in cohort).bit_length()
        work = [self._work.cohort, self._work.rounds.bit_length(), samples, self.engine.exact]
        return hashlib.sha256(
            json.dumps([__version__, plan, machine, work, self._dataset.shape]).encode()
        ).hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class _Trial:
    """What a candidate has shown."""

    engine: Engine
    step: float
    """Seconds a client's step takes."""
    warming: float
    """Seconds until the first cohort was through."""

    @property
    def handicap(self) -> float:
        """The reference arithmetic is left only for a gain that is more than the noise of a short trial."""
        return 1.0 if self.engine.arithmetic() == Arithmetic() else 1.2

    @property
    def compiling(self) -> float:
        return self.warming if getattr(self.engine, "compile", False) else 0.0

    @property
    def label(self) -> str:
        threads = getattr(self.engine, "intra_op", 1)
        compiled = " compiled" if self.compiling else ""
        return type(self.engine).name + compiled + (f" ({threads} intra-op)" if threads > 1 else "")

    def __str__(self) -> str:
        after = f" after {self.compiling:.0f} s of compiling" if self.compiling else ""
        return f"{self.label} {1e3 * self.step:.3g} ms{after}"


def _time(runner: Runner, cohort: list[Task]) -> tuple[float, float]:
    """(seconds a client's step takes, seconds to warm up), from a few steps of a few clients."""

    def trial(tasks: list[Task], steps: int) -> float:
        local = runner.plan.local.model_copy(update={"steps": steps})
        plan = runner.plan.model_copy(update={"local": local})
        begin = time.perf_counter()
        for _ in runner.run([dataclasses.replace(task, plan=plan) for task in tasks]):
            pass
        return time.perf_counter() - begin

    some = cohort[: 2 * cores()]
    warming = trial(some, 1)
    if runner.plan.arithmetic.vmap and trial(some, 1) / len(some) * len(cohort) < 2.0:
        # All at once is what vmap is for; but where it is hopeless, that would take minutes.
        some = cohort
        trial(some, 1)
    once = trial(some, 1)
    per_step = min(trial(some, 3) for _ in range(3)) / 3 if once < 1.0 else once
    return per_step / len(some), warming


def _has_conv(module: nn.Module) -> bool:
    return any(isinstance(part, _ConvNd) for part in module.modules())
