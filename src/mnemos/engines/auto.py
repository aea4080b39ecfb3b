"""The engine that chooses the fastest: it times others on the first cohort, or knows from an earlier run."""

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

from mnemos.client.messages import Arithmetic, Plan, TrainRequest
from mnemos.client.precision import check_precision
from mnemos.client.trainer import fresh_model
from mnemos.common.cores import cores
from mnemos.common.devices import CPU
from mnemos.data.dataset import Dataset
from mnemos.data.folder import recall, remember
from mnemos.engines.devices import DeviceEngine
from mnemos.engines.engine import Engine, Lost, Runner, Work, engines
from mnemos.engines.serial import Serial
from mnemos.engines.threads import Threads, one_by_one
from mnemos.engines.vmap import Vmap
from mnemos.errors import MnemosError
from mnemos.methods.exchange import TrainReply
from mnemos.version import __version__

_MEMORY = "engines.json"
_LONG = 600.0
"""If training takes more seconds than this, compiling is tried, which takes a minute or two itself."""


@engines.register("auto")
class Auto(DeviceEngine):
    """Times candidates on the first cohort, uses the fastest, and records the choice for later runs."""

    def open(self, plan: Plan, dataset: Dataset, work: Work) -> Runner:
        """A runner that chooses when it gets the first cohort."""
        check_precision(plan.local.precision, self.devices)
        return AutoRunner(self, plan, dataset, work)


class AutoRunner(Runner):
    """The runner of the engine that is chosen."""

    def __init__(self, engine: Auto, plan: Plan, dataset: Dataset, work: Work) -> None:
        super().__init__(engine, plan)
        self._options, self._device = engine, engine.settled().device
        self._on_cpu = engine.devices == (CPU,)
        self._dataset = dataset
        self._work = work
        self._chosen: Runner | None = None

    def run(self, cohort: Iterable[TrainRequest]) -> Iterator[TrainReply | Lost]:
        """The updates of a cohort, from the chosen engine."""
        if self._chosen is None:
            cohort = list(cohort)
            if not cohort:  # without a client to time, the choice waits for a later round
                return
            self._choose(cohort)
            cohort = [dataclasses.replace(request, plan=self.plan) for request in cohort]
        assert self._chosen is not None
        yield from self._chosen.run(cohort)
        self.engine = self._chosen.engine  # which may have found out how many clients fit into memory

    def close(self) -> None:
        """Close the chosen engine's runner."""
        if self._chosen is not None:
            self._chosen.close()

    def _choose(self, cohort: list[TrainRequest]) -> None:
        """Open the engine that was chosen for the same work before, or else the fastest."""
        key = self._key(cohort)
        try:
            self._take(engines.parse(recall(_MEMORY, key)), "remembered from an earlier run")
        except MnemosError:  # there is no record, or it doesn't fit any more
            engine, why = self._measure(cohort)
            remember(_MEMORY, key, engine.dump())
            self._take(engine, why)

    def _take(self, engine: Engine, why: str) -> None:
        self._chosen = engine.open(self.plan, self._dataset, self._work)
        self.engine, self.why, self.plan = self._chosen.engine, why, self._chosen.plan

    def _measure(self, cohort: list[TrainRequest]) -> tuple[Engine, str]:
        """The candidate that will finish the run first, and a sentence with the times of all candidates."""
        available = cores()
        trials: list[_Trial] = []
        for engine in self._candidates():
            self._try(engine, cohort, trials)
        vmapped = [trial for trial in trials if trial.label == "vmap"]
        if (
            vmapped
            and self._on_cpu
            and available > 1
            and vmapped[0].step < 2 * min(trial.step for trial in trials)
        ):
            self._try(Vmap(intra_op=available, device=self._device), cohort, trials)
        steps = sum(self._steps(request) for request in cohort) * self._work.rounds
        module = fresh_model(self.plan, self._dataset)
        if (
            min(trial.step for trial in trials) * steps > _LONG
            and not self.engine.exact
            and _has_conv(module)
        ):
            alone = Serial(compile=True, intra_op=available, device=self._device)
            for engine in (Threads(compile=True), alone) if self._on_cpu else (alone,):
                self._try(engine, cohort, trials)
        best = min(trials, key=lambda trial: trial.handicap * trial.step * steps + trial.compiling)
        return best.engine, "a client's step takes " + ", ".join(map(str, trials))

    def _steps(self, request: TrainRequest) -> int:
        return self.plan.local.round_steps(len(request.samples))

    def _candidates(self) -> list[Engine]:
        """The engines that are timed first."""
        found = one_by_one(self._work, self._options)
        vectorised = self.plan.local.optimizer.vectorised and not self._options.exact
        return [found, Vmap(device=self._device)] if vectorised else [found]

    def _try(self, engine: Engine, cohort: list[TrainRequest], trials: list[_Trial]) -> None:
        """Time an engine and append the result to `trials`; an engine that fails is left out."""
        try:
            with engine.open(self.plan, self._dataset, self._work) as runner:
                trials.append(_Trial(engine, *_time(runner, cohort)))
        except (MnemosError, RuntimeError):
            if not trials:  # the first candidate can run any model, so its error is the experiment's
                raise
            # Others may not suit the model (vmap with dropout) or the machine (no compiler).

    def _key(self, cohort: list[TrainRequest]) -> str:
        """A key of everything that the choice depends on, with sizes rounded to powers of two."""
        plan = self.plan.model_dump(mode="json")
        del plan["seed"]
        machine = [platform.node(), platform.processor(), cores(), torch.__version__, self._device]
        samples = max(len(request.samples) for request in cohort).bit_length()
        work = [self._work.cohort, self._work.rounds.bit_length(), samples, self.engine.exact]
        return hashlib.sha256(
            json.dumps([__version__, plan, machine, work, self._dataset.shape]).encode()
        ).hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class _Trial:
    """The times of a candidate."""

    engine: Engine
    step: float
    """Seconds that a client's step takes."""
    warming: float
    """Seconds that the first cohort took."""

    @property
    def handicap(self) -> float:
        """A factor on the time: engines with another than the reference arithmetic must be clearly faster."""
        found = self.engine.arithmetic()
        reference = Arithmetic(device=found.device, deterministic=found.deterministic)
        return 1.0 if found == reference else 1.2

    @property
    def compiling(self) -> float:
        """Seconds that compiling took; 0 for engines that don't compile."""
        return self.warming if getattr(self.engine, "compile", False) else 0.0

    @property
    def label(self) -> str:
        """The engine's name, with what differs from its default."""
        threads = getattr(self.engine, "intra_op", 1)
        compiled = " compiled" if self.compiling else ""
        return type(self.engine).name + compiled + (f" ({threads} intra-op)" if threads > 1 else "")

    def __str__(self) -> str:
        after = f" after {self.compiling:.0f} s of compiling" if self.compiling else ""
        return f"{self.label} {1e3 * self.step:.3g} ms{after}"


def _time(runner: Runner, cohort: list[TrainRequest]) -> tuple[float, float]:
    """Time a few steps of a few clients: returns the seconds of a client's step, and of the first cohort."""

    def trial(requests: list[TrainRequest], steps: int) -> float:
        """Seconds that these clients take for `steps` steps each."""
        local = runner.plan.local.model_copy(update={"steps": steps})
        plan = runner.plan.model_copy(update={"local": local})
        started = time.perf_counter()
        for _ in runner.run([dataclasses.replace(request, plan=plan) for request in requests]):
            pass
        return time.perf_counter() - started

    some = cohort[: 2 * cores()]
    warming = trial(some, 1)
    if runner.plan.arithmetic.vmap and trial(some, 1) / len(some) * len(cohort) < 2.0:
        # vmap is made for whole cohorts, but if it is far too slow for this model, that would take minutes.
        some = cohort
        trial(some, 1)
    once = trial(some, 1)
    per_step = min(trial(some, 3) for _ in range(3)) / 3 if once < 1.0 else once
    return per_step / len(some), warming


def _has_conv(module: nn.Module) -> bool:
    return any(isinstance(part, _ConvNd) for part in module.modules())
