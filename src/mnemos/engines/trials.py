"""How long engines take for a few steps of a few clients, by which one of them is chosen."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from mnemos.client.messages import Arithmetic, TrainRequest
from mnemos.common.cores import cores
from mnemos.engines.devices import arithmetic_on
from mnemos.engines.engine import Engine, Runner

LARGE = 0.25
"""A client's step that takes more seconds than this is timed once and not again.

Python's calls cost far less, so that `vmap`, which saves calls, isn't tried for such a model."""
_STEPS = 4
_SLOW = 0.5
"""If the clients that are timed take more seconds than this for a step, they are timed once."""
_REPEATS = 2


@dataclasses.dataclass(frozen=True)
class Trial:
    """The times of a candidate."""

    engine: Engine
    step: float
    """Seconds per step and client while several clients train: with two workers, half of a step's time."""
    beside: float = 0.0
    """Seconds per client for what isn't a step, such as a pass over its data."""
    alone: float = 0.0
    """Seconds of a round with one step of one client."""
    compiling: float = 0.0
    """Seconds that compiling took."""

    @property
    def handicap(self) -> float:
        """A factor on the time: engines with another than the reference arithmetic must be clearly faster."""
        found = self.engine.arithmetic()
        reference = arithmetic_on(found.device, Arithmetic(deterministic=found.deterministic))
        return 1.0 if found == reference else 1.2

    @property
    def label(self) -> str:
        """The engine's name, with what differs from its default."""
        threads = getattr(self.engine, "intra_op", 1)
        compiled = " compiled" if getattr(self.engine, "compile", False) else ""
        return type(self.engine).name + compiled + (f" ({threads} intra-op)" if threads > 1 else "")

    def seconds(self, clients: int, steps: int) -> float:
        """Seconds for a number of clients and the steps of all of them, with handicap and compiling."""
        return self.handicap * (self.step * steps + self.beside * clients) + self.compiling

    def __str__(self) -> str:
        after = f" after {self.compiling:.0f} s of compiling" if self.compiling else ""
        return f"{self.label} {1e3 * self.step:.3g} ms{after}"


def time_steps(engine: Engine, runner: Runner, cohort: Sequence[TrainRequest]) -> Trial:
    """Time a few steps of a few clients of a cohort, after one that isn't timed.

    `runner` is the opened `engine`. It takes a second or two, or a large model's few steps.
    """

    def seconds(requests: Sequence[TrainRequest], steps: int) -> float:
        """Seconds that these clients take for `steps` steps each."""
        local = runner.plan.local.model_copy(update={"steps": steps})
        plan = runner.plan.model_copy(update={"local": local})
        begin = time.perf_counter()
        for _ in runner.run([dataclasses.replace(request, plan=plan) for request in requests]):
            pass
        return time.perf_counter() - begin

    # The first step has costs that no other has: memory, imports, kernels that are chosen, compiling.
    warming, alone = seconds(cohort[:1], 1), seconds(cohort[:1], 1)
    compiling = warming if getattr(engine, "compile", False) else 0.0
    if alone > LARGE:
        return Trial(engine, alone / min(cores(), len(cohort)), 0.0, alone, compiling)
    some = cohort[: 2 * cores()]
    once = seconds(some, 1)
    if runner.plan.arithmetic.vmap and once / len(some) * len(cohort) < _SLOW:
        some = cohort  # which vmap is made for
        once = seconds(some, 1)
    if once > _SLOW:
        return Trial(engine, once / len(some), 0.0, alone, compiling)
    many = min(seconds(some, _STEPS) for _ in range(_REPEATS))
    once = min(once, seconds(some, 1))
    step = max(many - once, 0.0) / (_STEPS - 1) or many / _STEPS
    return Trial(engine, step / len(some), max(once - step, 0.0) / len(some), alone, compiling)
