"""The engine that chooses the fastest: it times others on the first cohort, or knows from an earlier run.

The choice takes a second or two. What takes longer to find out, compiling, is tried beside the run, for later
runs of the same kind.
"""

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

from mnemos.client.messages import Plan, TrainRequest
from mnemos.client.precision import check_precision
from mnemos.client.trainer import fresh_model
from mnemos.common.activity import doing, training
from mnemos.common.cores import cores
from mnemos.common.devices import CPU
from mnemos.data.dataset import Dataset
from mnemos.engines.beside import Beside
from mnemos.engines.devices import DeviceEngine
from mnemos.engines.engine import Engine, InBlocks, Lost, Runner, Work, engines, in_blocks
from mnemos.engines.known import compiled_wanted, recall_engine, remember_fastest, want_compiled
from mnemos.engines.threads import one_by_one
from mnemos.engines.together import company
from mnemos.engines.trials import LARGE, Trial, time_steps
from mnemos.engines.vmap import Vmap, has_short_steps
from mnemos.errors import MnemosError
from mnemos.methods.exchange import TrainReply
from mnemos.methods.replies import TrainReplies
from mnemos.version import __version__

_LONG = 600.0
"""If training takes more seconds than this, compiling is tried beside it, which takes a minute or two."""


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
        self._beside: Beside | None = None

    def run(self, cohort: Iterable[TrainRequest]) -> Iterator[TrainReply | Lost]:
        """The updates of a cohort, from the chosen engine."""
        return InBlocks(self._blocks(cohort))

    def _blocks(self, cohort: Iterable[TrainRequest]) -> Iterator[TrainReplies | Lost]:
        if self._chosen is None:
            cohort = list(cohort)
            if not cohort:  # without a client to time, the choice waits for a later round
                return
            begin = time.perf_counter()
            self._choose(cohort)
            self.choosing = time.perf_counter() - begin
            training(0, len(cohort))  # and no longer trying engines
            cohort = [dataclasses.replace(request, plan=self.plan) for request in cohort]
        assert self._chosen is not None
        yield from in_blocks(self._chosen.run(cohort))
        self.engine = self._chosen.engine  # which may have found out how many clients fit into memory

    def close(self) -> None:
        """Close the chosen engine's runner, and end what is tried beside it."""
        try:
            if self._beside is not None:
                self._beside.close()
        finally:
            if self._chosen is not None:
                self._chosen.close()

    def _choose(self, cohort: list[TrainRequest]) -> None:
        """Open the engine that was chosen for the same work before, or else the fastest."""
        if company() is not None and self._joins():  # whose other runs would be timed, too
            self._take(Vmap(device=self._device), "it trains together with other runs of its study")
            return
        key, rounds = self._key(cohort), self._work.rounds
        clients = len(cohort) * rounds
        steps = rounds * sum(self._steps(request) for request in cohort)
        try:
            self._take(recall_engine(key), "remembered from an earlier run")
        except MnemosError:  # there is no record, or it doesn't fit any more
            trials = self._trials(cohort)
            best = min(trials, key=lambda trial: trial.seconds(clients, steps))
            remember_fastest(key, best.engine)
            self._take(best.engine, "a client's step takes " + ", ".join(map(str, trials)))
            if best.seconds(clients, steps) > _LONG and self._may_compile():
                want_compiled(key)
        if compiled_wanted(key):
            self._beside = Beside(key, self.engine, cohort[: 2 * cores()], clients, steps)

    def _joins(self) -> bool:
        """Whether the run can be trained together with others, by `vmap`."""
        free = self._on_cpu and not self._options.exact and self.plan.local.optimizer.vectorised
        return free and has_short_steps(self.plan, self._dataset)

    def _may_compile(self) -> bool:
        """Whether compiling could pay: on the CPU, for a model with convolutions, client by client.

        Beside a run on another device, a second process would need memory there.
        """
        if not self._on_cpu or self._options.exact or self.plan.arithmetic.vmap:
            return False
        return has_convolutions(fresh_model(self.plan, self._dataset))

    def _take(self, engine: Engine, why: str) -> None:
        self._chosen = engine.open(self.plan, self._dataset, self._work)
        self.engine, self.why, self.plan = self._chosen.engine, why, self._chosen.plan

    def _trials(self, cohort: list[TrainRequest]) -> list[Trial]:
        """The times of the candidates; at least one."""
        trials: list[Trial] = []
        alone = not self.plan.local.optimizer.vectorised or self._options.exact
        several = self._on_cpu and cores() > 1 and not has_short_steps(self.plan, self._dataset)
        most = 1 if alone else 3 if several else 2
        doing(f"trying engines 1/{most}")
        self._try(one_by_one(self._work, self._options), cohort, trials)
        if alone or trials[0].alone > LARGE:
            return trials
        doing(f"trying engines 2/{most}")
        self._try(Vmap(device=self._device), cohort, trials)
        if several and len(trials) > 1 and trials[1].step < 2 * trials[0].step:
            doing(f"trying engines 3/{most}")
            self._try(Vmap(intra_op=cores(), device=self._device), cohort, trials)
        return trials

    def _steps(self, request: TrainRequest) -> int:
        return self.plan.local.round_steps(len(request.samples))

    def _try(self, engine: Engine, cohort: list[TrainRequest], trials: list[Trial]) -> None:
        """Time an engine and append the result to `trials`; an engine that fails is left out."""
        try:
            with engine.open(self.plan, self._dataset, self._work) as runner:
                trials.append(time_steps(engine, runner, cohort))
        except (MnemosError, RuntimeError):
            if not trials:  # the first candidate can run any model, so its error is the experiment's
                raise
            # Others may not suit the model, as vmap with dropout.

    def _key(self, cohort: list[TrainRequest]) -> str:
        """A key of everything that the choice depends on, with sizes rounded to powers of two."""
        plan = self.plan.model_dump(mode="json")
        del plan["seed"], plan["local"]["lr"], plan["local"]["weight_decay"]  # a study tries many of them
        machine = [platform.node(), platform.processor(), cores(), torch.__version__, self._device]
        samples = max(len(request.samples) for request in cohort).bit_length()
        work = [self._work.cohort, self._work.rounds.bit_length(), samples, self.engine.exact]
        return hashlib.sha256(
            json.dumps([__version__, plan, machine, work, self._dataset.shape]).encode()
        ).hexdigest()[:16]


def has_convolutions(module: nn.Module) -> bool:
    """Whether a model has convolutional layers."""
    return any(isinstance(part, _ConvNd) for part in module.modules())
