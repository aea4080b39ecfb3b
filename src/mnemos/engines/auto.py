"""The engine that is fastest here: timed on the first cohort, or remembered from an earlier run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import platform
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import platformdirs
import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from mnemos.client import fresh_model
from mnemos.data.dataset import Dataset
from mnemos.engines.engine import Engine, Runner, Work, engines
from mnemos.engines.serial import Serial
from mnemos.engines.threads import Threads
from mnemos.engines.vmap import Vmap
from mnemos.errors import ConfigError, MnemosError
from mnemos.files import write_atomically
from mnemos.message import Plan, Task
from mnemos.methods.method import Update
from mnemos.version import __version__

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

    def run(self, cohort: Iterable[Task]) -> Iterator[Update]:
        """The updates of a cohort, by the engine chosen."""
        if self._chosen is None:
            cohort = list(cohort)
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
            self._take(_remembered(key), "remembered from an earlier run")
        except MnemosError:  # nothing remembered, or nothing that fits any more
            engine, why = self._measure(cohort)
            _remember(key, engine)
            self._take(engine, why)

    def _take(self, engine: Engine, why: str) -> None:
        self._chosen = engine.open(self.plan, self._dataset, self._work)
        self.engine, self.why, self.plan = engine, why, self._chosen.plan

    def _measure(self, cohort: list[Task]) -> tuple[Engine, str]:
        """The fastest candidate, and the figures that say so."""
        cores = os.cpu_count() or 1
        module = fresh_model(self.plan, self._dataset)
        times: dict[str, tuple[float, Engine]] = {}
        for engine in self._candidates():
            self._try(engine, cohort, times)
        best = min(seconds for seconds, _ in times.values())
        if times.get("vmap", (math.inf,))[0] < 2 * best and cores > 1:
            self._try(Vmap(intra_op=cores), cohort, times)
            best = min(seconds for seconds, _ in times.values())
        steps = self.plan.local.steps or self.plan.local.epochs * (
            -(-max(len(task.samples) for task in cohort) // self.plan.local.batch)
        )
        total = best * steps * self._work.cohort * self._work.rounds
        if total > _LONG and not self.engine.exact and _has_conv(module):
            for engine in (Threads(compile=True), Serial(compile=True, intra_op=cores)):
                self._try(engine, cohort, times)
        name = min(times, key=lambda label: times[label][0])
        figures = ", ".join(f"{label} {1e3 * seconds:.3g} ms" for label, (seconds, _) in times.items())
        return times[name][1], f"a client's step takes {figures}"

    def _candidates(self) -> list[Engine]:
        exact = self.engine.exact
        if (os.cpu_count() or 1) == 1 or self._work.cohort == 1:
            found: list[Engine] = [Serial(exact=exact)]
        else:
            found = [Threads(exact=exact)]
        return found if exact else [*found, Vmap()]

    def _try(self, engine: Engine, cohort: list[Task], times: dict[str, tuple[float, Engine]]) -> None:
        try:
            with engine.open(self.plan, self._dataset, self._work) as runner:
                times[_label(engine)] = (_time(runner, cohort), engine)
        except (MnemosError, RuntimeError) as error:
            if not times:  # the first candidate runs everything: its error is the user's to see
                raise
            if isinstance(error, ConfigError):
                return  # this engine says that it isn't for this model

    def _key(self, cohort: list[Task]) -> str:
        """Everything a choice depends on; sizes to the next power of two."""
        plan = self.plan.model_dump(mode="json")
        del plan["seed"]
        machine = [platform.node(), platform.processor(), os.cpu_count(), torch.__version__]
        samples = max(len(task.samples) for task in cohort).bit_length()
        work = [self._work.cohort, self._work.rounds.bit_length(), samples, self.engine.exact]
        return hashlib.sha256(
            json.dumps([__version__, plan, machine, work, self._dataset.shape]).encode()
        ).hexdigest()[:16]


def _time(runner: Runner, cohort: list[Task]) -> float:
    """Seconds a client's step takes, from a few steps after one to warm up."""

    def trial(steps: int) -> float:
        local = runner.plan.local.model_copy(update={"steps": steps})
        plan = runner.plan.model_copy(update={"local": local})
        tasks = [dataclasses.replace(task, plan=plan) for task in some]
        begin = time.perf_counter()
        for _ in runner.run(tasks):
            pass
        return (time.perf_counter() - begin) / (steps * len(tasks))

    vectorised = runner.plan.arithmetic.vmap
    some = cohort if vectorised else cohort[: 2 * (os.cpu_count() or 1)]
    if vectorised:
        # One small trial first: where vmap is hopeless, a whole cohort of it would take minutes.
        some = cohort[:4]
        if trial(1) * len(cohort) < 2.0:
            some = cohort
    warm = trial(1)
    return min(trial(3), trial(3)) if warm * len(some) < 1.0 else trial(1)


def _label(engine: Engine) -> str:
    compiled = " compiled" if getattr(engine, "compile", False) else ""
    threads = getattr(engine, "intra_op", 1)
    return type(engine).name + compiled + (f" ({threads} intra-op)" if threads > 1 else "")


def _has_conv(module: nn.Module) -> bool:
    return any(isinstance(part, _ConvNd) for part in module.modules())


def _memory() -> Path:
    folder = os.environ.get("MNEMOS_CACHE") or platformdirs.user_cache_dir("mnemos")
    return Path(folder) / "engines.json"


def _remembered(key: str) -> Engine:
    try:
        return engines.parse(json.loads(_memory().read_text())[key])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"no engine is remembered ({error!r})") from None


def _remember(key: str, engine: Engine) -> None:
    path = _memory()
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        known = {}
    if not isinstance(known, dict):
        known = {}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps({**known, key: engine.dump()}, indent=1).encode())
    except OSError:
        return  # a cache that can't be written costs a few seconds the next time
