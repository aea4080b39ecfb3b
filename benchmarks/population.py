"""What a million registered clients cost: memory, and the time of a round beside a thousand clients.

    python benchmarks/population.py [--clients 1000000] [--rounds 40]

Every client has three samples of 8×8 bytes, 100 clients train in each round. The two populations take
turns in one process, so a busy machine slows them alike; memory is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from contextlib import closing

from engine import Random
from mnemos.engines.engine import Runner
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation


def experiment(clients: int, rounds: int) -> Experiment:
    return Experiment.parse(
        {
            "data": Random(count=3 * clients, shape=(1, 8, 8)),
            "partition": {"name": "dirichlet", "clients": clients, "alpha": 0.1, "validation": 0},
            "model": {"name": "mlp", "hidden": [64]},
            "local": {"epochs": 1, "batch": 64, "lr": 0.05},
            "participation": 100 / clients,
            "rounds": rounds,
            "evaluate": {"every": rounds, "test_last": 0},
            "engine": {"name": "threads"},
        }
    )


def timed(federation: Federation, runner: Runner) -> float:
    begin = time.perf_counter()
    federation.advance(runner)
    return time.perf_counter() - begin


def memory(clients: int, rounds: int) -> None:
    begin = time.perf_counter()
    with closing(Federation(experiment(clients, rounds))) as federation, federation.open() as runner:
        ready = time.perf_counter() - begin
        for _ in range(rounds):
            federation.advance(runner)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(json.dumps({"peak_gb": peak, "setup_s": ready}))


def compare(clients: int, rounds: int) -> None:
    with (
        closing(Federation(experiment(1_000, rounds))) as small,
        closing(Federation(experiment(clients, rounds))) as large,
        small.open() as small_runner,
        large.open() as large_runner,
    ):
        pairs = [(timed(small, small_runner), timed(large, large_runner)) for _ in range(rounds)][5:]
    few, many = (1e3 * statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"  1,000 clients      {few:8.2f} ms a round")
    print(f"  {clients:,} clients  {many:8.2f} ms a round")
    print(f"  ratio of medians = {many / few:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--memory", action="store_true", help="measure memory in this process and print JSON")
    arguments = parser.parse_args()
    if arguments.memory:
        memory(arguments.clients, arguments.rounds)
        return
    words = [sys.executable, __file__, "--memory", "--clients", str(arguments.clients)]
    facts = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    print(f"{arguments.clients:,} clients, 100 a round:")
    print(f"  peak memory {facts['peak_gb']:.2f} GB, ready after {facts['setup_s']:.1f} s")
    compare(arguments.clients, arguments.rounds)


if __name__ == "__main__":
    main()
