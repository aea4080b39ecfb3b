"""How long engines take for a few steps of a few clients, by which one of them is chosen."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from mnemos.client.messages import Arithmetic, TrainRequest
from mnemos.common.cores import cores
from mnemos.engines.engine import Engine, Runner

_SLOW = 0.5
"""If the first steps take more seconds than this, they are enough to judge by, and no more are made."""
_REPEATS = 3


@dataclasses.dataclass(frozen=True)
class Trial:
    """The times of a candidate."""

    engine: Engine
    step: float
    """Seconds that a client's step takes."""
    warming: float
    """Seconds that the first steps took."""

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

    def seconds(self, steps: int) -> float:
        """Seconds that this many clients' steps would take, with its handicap and with compiling."""
        return self.handicap * self.step * steps + self.compiling

    def __str__(self) -> str:
        after = f" after {self.compiling:.0f} s of compiling" if self.compiling else ""
        return f"{self.label} {1e3 * self.step:.3g} ms{after}"


def time_steps(runner: Runner, cohort: Sequence[TrainRequest]) -> Trial:
    """Time a few steps of a few clients; a second or two for an engine that suits them, and no compiling."""

    def seconds(requests: Sequence[TrainRequest], steps: int) -> float:
        """Seconds that these clients take for `steps` steps each."""
        local = runner.plan.local.model_copy(update={"steps": steps})
        plan = runner.plan.model_copy(update={"local": local})
        begin = time.perf_counter()
        for _ in runner.run([dataclasses.replace(request, plan=plan) for request in requests]):
            pass
        return time.perf_counter() - begin

    some = cohort[: 2 * cores()]
    warming = seconds(some, 1)
    compiled = bool(getattr(runner.engine, "compile", False))
    if warming > _SLOW and not compiled:
        return Trial(runner.engine, warming / len(some), warming)
    once = seconds(some, 1)
    if runner.plan.arithmetic.vmap and once / len(some) * len(cohort) < _SLOW:
        some = cohort  # which vmap is made for
        once = seconds(some, 1)
    step = once if once > _SLOW else min(seconds(some, 3) for _ in range(_REPEATS)) / 3
    return Trial(runner.engine, step / len(some), warming)
