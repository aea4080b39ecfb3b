"""How time and memory of a round grow with the population, the cohort and the number of rounds.

    python benchmarks/growth.py [population] [cohort] [rounds] [states] [--turns 9] [--least 100]

A model 16-10 (logistic regression) on `vmap`, clients of one sample of 4×4 bytes; all parts when none is
named. `population`: `least` to `most` clients, 100 a round; each takes turns with 10³ clients in one process.
`cohort`: 10 to 10,000 of 20,000 clients a round. `rounds`: 20,000 rounds of 10 clients, memory and time
in ten parts. `states`: SCAFFOLD with 100,000 clients, whose states are in a file. Times are processor time,
which other programs disturb less; memory is the highest resident size of a process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from engine import Random
from mnemos.engines.engine import Runner
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation


def experiment(clients: int, cohort: int, method: str = "fedavg", hidden: tuple[int, ...] = ()) -> Experiment:
    rounds = 1_000_000
    return Experiment.parse(
        {
            "data": Random(count=clients, shape=(1, 4, 4), test=100),
            "partition": {"name": "iid", "clients": clients, "validation": 0},
            "model": {"name": "mlp", "hidden": list(hidden)},
            "method": method,
            "local": {"epochs": 1, "batch": 16, "lr": 0.05},
            "participation": cohort / clients,
            "rounds": rounds,
            "evaluate": {"every": rounds, "test_last": 0},
            "engine": {"name": "vmap", "device": "cpu"},
        }
    )


def timed(federation: Federation, runner: Runner) -> float:
    """Milliseconds of processor time of a round."""
    begin = time.process_time()
    federation.advance(runner)
    return 1e3 * (time.process_time() - begin)


def spread(values: list[float]) -> str:
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return f"{median:8.3f} ({lower:.3f} to {upper:.3f})"


def peak() -> float:
    """The highest resident size of this process, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def population(turns: int, least: int, most: int) -> None:
    print("population: ms a round, and the ratio to 1,000 clients in the same turn; memory MB")
    with closing(Federation(experiment(1_000, 100))) as small, small.open() as small_runner:
        timed(small, small_runner)
        clients = least
        while clients <= most:
            with closing(Federation(experiment(clients, 100))) as large, large.open() as large_runner:
                timed(large, large_runner)
                pairs = [(timed(small, small_runner), timed(large, large_runner)) for _ in range(turns)]
            ratios = [own / other for other, own in pairs]
            print(
                f"  {clients:>10,} {spread([own for _, own in pairs])}  ratio {spread(ratios)}"
                f"  {_memory_apart(clients, 100):8.0f}",
                flush=True,
            )
            clients *= 10


def _memory_apart(clients: int, cohort: int) -> float:
    """The memory of a process that runs three rounds."""
    words = [sys.executable, __file__, "memory", "--clients", str(clients), "--cohort", str(cohort)]
    found = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return float(json.loads(found)["peak"])


def memory(clients: int, cohort: int) -> None:
    with closing(Federation(experiment(clients, cohort))) as federation, federation.open() as runner:
        for _ in range(3):
            federation.advance(runner)
    print(json.dumps({"peak": peak()}))


def cohort(turns: int) -> None:
    print("cohort: ms a round, and µs a client; memory MB")
    for size in (10, 100, 1_000, 10_000):
        with closing(Federation(experiment(20_000, size))) as federation, federation.open() as runner:
            timed(federation, runner)
            found = [timed(federation, runner) for _ in range(turns)]
        each = 1e3 * statistics.median(found) / size
        print(f"  {size:>10,} {spread(found)}  {each:8.1f}  {_memory_apart(20_000, size):8.0f}", flush=True)


def rounds(total: int) -> None:
    print(f"rounds: ms a round in each tenth of {total:,} rounds of 10 clients, and memory MB so far")
    with closing(Federation(experiment(1_000, 10))) as federation, federation.open() as runner:
        for part in range(10):
            found = [timed(federation, runner) for _ in range(total // 10)]
            print(f"  {(part + 1) * total // 10:>10,} {spread(found)}  {peak():8.0f}", flush=True)


def states(turns: int) -> None:
    print("states: SCAFFOLD, 100,000 clients, 1,000 a round, an MLP 16-64-10; the file's size and memory, MB")
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(Federation(experiment(100_000, 1_000, "scaffold", (64,)))) as federation,
        federation.open() as runner,
    ):
        path = Path(folder) / "states"
        federation.client_states.keep_in(path)
        for round in range(1, turns + 1):
            found = timed(federation, runner)
            federation.client_states.forget(round)  # as when the checkpoint before is deleted
            size = path.stat().st_size / 1e6
            print(f"  round {round:>3} {found:8.1f} ms  file {size:8.1f}  peak {peak():8.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help="population, cohort, rounds, states; all if none is named")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--least", type=int, default=100, help="clients of the smallest population")
    parser.add_argument("--most", type=int, default=10_000_000, help="clients of the largest population")
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=1_000, help="with `memory`")
    parser.add_argument("--cohort", type=int, default=100, help="with `memory`")
    chosen = parser.parse_args()
    if chosen.parts == ["memory"]:
        memory(chosen.clients, chosen.cohort)
        return
    parts = {
        "population": lambda: population(chosen.turns, chosen.least, chosen.most),
        "cohort": lambda: cohort(chosen.turns),
        "rounds": lambda: rounds(chosen.rounds),
        "states": lambda: states(chosen.turns),
    }
    for part in chosen.parts or parts:
        parts[part]()


if __name__ == "__main__":
    main()
