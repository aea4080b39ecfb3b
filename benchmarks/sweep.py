"""What running several at once gains: a sweep of small runs, one after the other and as many as cores.

    python benchmarks/sweep.py [--runs 8] [--rounds 300] [--jobs 2] [--repeats 1]

Both ways include all there is to it: starting processes, imports, reading data. They take turns in folders
of their own, and the engine's choice is made before, so that no run looks for it. The processor time says
what to expect of a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import mnemos

BASE: dict[str, Any] = {
    "data": "digits",
    "model": {"name": "mlp", "hidden": [64]},
    "partition": {"name": "dirichlet", "clients": 50, "alpha": 0.1},
    "local": {"epochs": 5, "batch": 8, "lr": 0.1},
    "participation": 0.1,
    "evaluate": {"every": 10, "test_last": 10},
}


def timed(folder: Path, jobs: int, runs: int, rounds: int) -> tuple[float, float]:
    """Seconds, and seconds of processor time."""
    study = {"base": {**BASE, "rounds": rounds}, "variants": {"small": {}}, "seeds": list(range(runs))}
    begin, used = time.perf_counter(), processor()
    results = mnemos.sweep(study, out=folder, jobs=jobs)
    seconds, used = time.perf_counter() - begin, processor() - used
    assert len(results.accuracies("small")) == runs, results.failed
    return seconds, used


def processor() -> float:
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in usage)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for jobs in (1, arguments.jobs):
            timed(folder / f"first-{jobs}", jobs, jobs, arguments.rounds)
        for repeat in range(arguments.repeats):
            (alone, alone_used), (together, together_used) = (
                timed(folder / f"{repeat}-{jobs}", jobs, arguments.runs, arguments.rounds)
                for jobs in (1, arguments.jobs)
            )
            ratios.append(together / alone)
            print(
                f"{arguments.runs} runs: in turn {alone:.1f} s ({alone_used:.1f} s of processor time), "
                f"{arguments.jobs} at once {together:.1f} s ({together_used:.1f} s)"
            )
    print(f"ratio = {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
