"""What a method or a measurement adds to a round of FedAvg with cross-entropy (LeNet, 10 of 100 clients).

    python benchmarks/overheads.py [wsm] [scaffold] [forgetting] … [--repeats 15] [--workers 0]

Every contender advances side by side with plain FedAvg: the same round, the same clients, one directly after
the other and in changing order, in one process. Printed is the median of the rounds' own ratios, with the
quartiles, so that a busy machine, which slows both alike, drops out.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import ExitStack, closing
from typing import Any

from engine import Random
from mnemos.engines.engine import Runner
from mnemos.experiment import Experiment
from mnemos.federation import Federation
from mnemos.methods.method import methods

METHODS: dict[str, dict[str, Any]] = {
    "wsm": {"method.loss": "wsm"},
    "forgetting": {"evaluate.forgetting": 1},
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


def seconds(federation: Federation, runner: Runner) -> float:
    begin = time.perf_counter()
    federation.advance(runner)
    return time.perf_counter() - begin


def compare(name: str, changes: dict[str, Any], workers: int, repeats: int) -> None:
    with ExitStack() as stack:
        pairs = []
        for wanted in ({}, changes):
            federation = stack.enter_context(closing(Federation(experiment(workers, wanted))))
            pairs.append((federation, stack.enter_context(federation.open())))
        plain, other = pairs
        ratios, base = [], []
        for repeat in range(repeats + 1):
            if repeat % 2:
                first, second = seconds(*plain), seconds(*other)
            else:
                second, first = seconds(*other), seconds(*plain)
            if repeat:  # the first one warms up
                ratios.append(second / first)
                base.append(first)
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(
            f"{name:14s} {middle:6.3f} × FedAvg + CE (quartiles {low:.3f}–{high:.3f}, {repeats} rounds, "
            f"FedAvg {statistics.median(base):.2f} s a round)",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("contenders", nargs="*", help=f"of {', '.join(METHODS)}; all when none is named")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--workers", type=int, default=0, help="threads; 0: one a core")
    arguments = parser.parse_args()
    for name in arguments.contenders or METHODS:
        compare(name, METHODS[name], arguments.workers, arguments.repeats)


if __name__ == "__main__":
    main()
