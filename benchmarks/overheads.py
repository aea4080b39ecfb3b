"""What a method or a measurement adds to a round of FedAvg with cross-entropy (LeNet, 10 of 100 clients).

    python benchmarks/overheads.py [wsm] [scaffold] [forgetting] … [--builds 6] [--repeats 10] [--workers 0]

Every contender advances side by side with plain FedAvg: the same round, the same clients, one directly after
the other and in changing order, in one process. Both are built anew several times, as where their memory
happens to lie makes a difference of some percent. Printed are the medians of the rounds' own ratios, with the
quartiles, of wall-clock time and of processor time over all threads. Wall-clock time is what one waits for;
processor time doesn't count the time others keep a shared machine busy, and tells small differences better.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

from engine import Random
from mnemos.engines.engine import Runner
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.methods.method import methods

METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "wsm": {"method.loss": "wsm"},
    "forgetting": {"evaluate.forgetting": 1},
    "ledger": {"measures": ["ledger"]},
    "scaffold-I": {"method": {"name": "scaffold", "correction": {"name": "scaffold", "option": "I"}}},
    **{name: {"method": name} for name in methods.names() if name not in {"fedavg", "fedsgd"}},
}


def experiment(workers: int, changes: dict[str, Any]) -> Experiment:
    base = Experiment.parse(
        {
            "data": Random(count=50_000, shape=(3, 32, 32)),
            "partition": {"name": "iid", "clients": 100, "validation": 0.1},
            "model": "lenet",
            "local": {"epochs": 3, "batch": 64, "lr": 0.01, "weight_decay": 1e-4},
            "participation": 0.1,
            "rounds": 1_000_000,
            "evaluate": {"every": 1_000_000, "test_last": 0},
            "engine": {"name": "threads", "workers": workers},
        }
    )
    return base.override(changes)


class Times(NamedTuple):
    """Seconds of one round."""

    wall: float
    processor: float


def timed(federation: Federation, runner: Runner) -> Times:
    wall, processor = time.perf_counter(), time.process_time()
    federation.advance(runner)
    return Times(time.perf_counter() - wall, time.process_time() - processor)


def compare(name: str, changes: dict[str, Any], workers: int, builds: int, repeats: int) -> None:
    rounds = [pair for build in range(builds) for pair in side_by_side(changes, workers, repeats, build % 2)]
    print(f"{name:14s} {_ratio(rounds, 0)} wall, {_ratio(rounds, 1)} processor", flush=True)


def side_by_side(
    changes: dict[str, Any], workers: int, repeats: int, other_first: int
) -> list[tuple[Times, Times]]:
    """The times of plain FedAvg and of the other, round by round."""
    with ExitStack() as stack:
        built = []
        for wanted in (changes, {}) if other_first else ({}, changes):
            federation = stack.enter_context(closing(Federation(experiment(workers, wanted))))
            built.append((federation, stack.enter_context(federation.open())))
        plain, other = reversed(built) if other_first else built
        rounds = []
        for repeat in range(repeats + 1):
            if repeat % 2:
                first = timed(*plain)
                rounds.append((first, timed(*other)))
            else:
                second = timed(*other)
                rounds.append((timed(*plain), second))
    return rounds[1:]  # the first one warms up


def _ratio(rounds: list[tuple[Times, Times]], kind: int) -> str:
    low, middle, high = statistics.quantiles([other[kind] / plain[kind] for plain, other in rounds], n=4)
    return f"{middle:.3f} × ({low:.3f}–{high:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("contenders", nargs="*", help=f"of {', '.join(METHODS)}; all when none is named")
    parser.add_argument("--builds", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=10, help="rounds of each build")
    parser.add_argument("--workers", type=int, default=0, help="threads; 0: one a core")
    arguments = parser.parse_args()
    print(
        f"a round, as a multiple of one of FedAvg + CE: medians (quartiles) of "
        f"{arguments.builds * arguments.repeats} rounds"
    )
    for name in arguments.contenders or METHODS:
        compare(name, METHODS[name], arguments.workers, arguments.builds, arguments.repeats)


if __name__ == "__main__":
    main()
