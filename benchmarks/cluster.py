"""How long a round takes on a local Ray cluster, beside the same round on threads.

    python benchmarks/cluster.py [lenet] [mlp] [--repeats 9] [--workers 2]

Both advance side by side in one process, round after round, so a busy machine slows them alike; printed are
medians, and the median of the rounds' own ratios with its quartiles. LeNet is work that is worth sending
away; the small MLP shows what sending costs, also as the processor time that the driver spends on a client.
The two must end with the same model, bit for bit.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import ExitStack, closing

import torch

from engine import JOBS
from mnemos.federation.federation import Federation


def bench(name: str, repeats: int, workers: int) -> None:
    with ExitStack() as stack:
        sides = []
        for engine in ("threads", "ray"):
            begin = time.perf_counter()
            described = JOBS[name].experiment.override({"engine": {"name": engine, "workers": workers}})
            federation = stack.enter_context(closing(Federation(described)))
            sides.append((federation, stack.enter_context(federation.open())))
            print(f"{name}: {engine} is ready after {time.perf_counter() - begin:.1f} s")
        times: list[list[float]] = []
        driver: list[float] = []
        for _ in range(repeats + 1):
            times.append([])
            for federation, runner in sides:
                begin, processor = time.perf_counter(), time.process_time()
                federation.advance(runner)
                times[-1].append(time.perf_counter() - begin)
            driver.append(time.process_time() - processor)  # Ray's, which is the second
        threads, ray = (federation.server.model for federation, _ in sides)
    assert torch.equal(threads, ray)
    rounds = times[1:]  # the first one warms up
    for side, engine in enumerate(("threads", "ray")):
        print(f"  {engine:7s} {1e3 * statistics.median(row[side] for row in rounds):8.1f} ms a round")
    low, middle, high = statistics.quantiles([other / one for one, other in rounds], n=4)
    print(f"  ray / threads = {middle:.2f} ({low:.2f} to {high:.2f})")
    each = statistics.median(driver[1:]) / JOBS[name].cohort
    print(f"  the driver of ray spends {1e3 * each:.2f} ms of processor time on a client", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("jobs", nargs="*", help=f"of {', '.join(JOBS)}; lenet and mlp when none is named")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    for name in arguments.jobs or ("lenet", "mlp"):
        bench(name, arguments.repeats, arguments.workers)


if __name__ == "__main__":
    main()
