"""How well a device is used: rounds a second, clients at once, memory, beside a plain loop on it.

    python benchmarks/device.py                     # the accelerator that there is, or the CPU
    python benchmarks/device.py lenet mlp --device cuda:1 --repeats 9
    python benchmarks/device.py --pretend           # no accelerator: counts of kernels, transfers and waits

The first two print a table to send with a report. All contenders run in turn in the same process. `plain` is
the loop that everybody writes first: one client after the other, its batches indexed on the device. The last
one runs on the pretend device of the tests, whose counts are exact and the same on every machine; they are in
docs/results/devices.md.
"""

from __future__ import annotations

import argparse
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import torch

from engine import JOBS, Job, Loop, measure
from mnemos.client.workload import workload
from mnemos.common.devices import CPU, describe, find_devices, free_memory, synchronize
from mnemos.errors import ConfigError
from mnemos.federation.federation import Federation
from mnemos.version import __version__

COUNTED: dict[str, dict[str, object]] = {
    "FedAvg": {},
    "SCAFFOLD + WSM": {"method": {"name": "scaffold", "loss": "wsm"}},
    "FedSpace, two tasks": {"method": "fedspace", "stream": {"name": "tasks", "tasks": 2}},
    "FedAvg with DP": {
        "method": {"name": "fedavg", "weighting": "uniform"},
        "privacy": {"name": "gaussian"},
    },
}


class DeviceLoop(Loop):
    """A hand-written FedAvg round on a device, with the data set there."""

    def __init__(self, job: Job, device: torch.device) -> None:
        super().__init__(job, 1, channels_last=False)
        self.device, self.x, self.y = device, self.x.to(device), self.y.to(device)
        self.model = self.model.to(device)

    def round(self) -> None:
        with torch.device(self.device):  # its indices are drawn there
            super().round()
        synchronize(self.device)


def opened(job: Job, engine: str, device: torch.device, stack: ExitStack) -> tuple[Federation, object]:
    """A federation with an engine on a device, and its runner; both are closed with the stack."""
    described = job.experiment.override({"engine": {"name": engine, "device": str(device)}})
    federation = stack.enter_context(closing(Federation(described)))
    return federation, stack.enter_context(federation.open())


@contextmanager
def use_of(device: torch.device) -> Iterator[Callable[[], str]]:
    """Inside, how busy a device is gets sampled; says the mean in percent, or a dash where it isn't told."""
    module, seen, ended = getattr(torch, device.type, None), list[float](), threading.Event()

    def sample() -> None:
        try:
            while not ended.wait(0.1):
                seen.append(float(module.utilization(device)))  # type: ignore[union-attr]
        except Exception:  # the package that asks the driver isn't there
            seen.clear()

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield lambda: f"{sum(seen) / len(seen):.0f} %" if seen else "–"
    finally:
        ended.set()
        thread.join()


def bench(name: str, job: Job, device: torch.device, repeats: int) -> None:
    """Print the rows of one job."""
    module = getattr(torch, device.type, None)
    steps = job.cohort * job.epochs * -(-job.samples // job.batch)
    with ExitStack() as stack:
        contenders: dict[str, Callable[[], object]] = {"plain": DeviceLoop(job, device).round}
        engines = {}
        for engine in ("serial", "vmap"):
            federation, runner = opened(job, engine, device, stack)
            engines[engine] = runner
            contenders[engine] = lambda federation=federation, runner=runner: federation.advance(runner)  # type: ignore[misc]
        times = measure(contenders, repeats)
        for contender, work in contenders.items():
            getattr(module, "reset_peak_memory_stats", lambda _device: None)(device)
            with use_of(device) as busy:
                work()
                synchronize(device)
            most = getattr(module, "max_memory_allocated", lambda _device: 0)
            peak = most(device) / 1e6
            at_once = getattr(getattr(engines.get(contender), "engine", None), "chunk", 1) or job.cohort
            seconds = times[contender]
            print(
                f"| {name} | {contender} | {1 / seconds:.2f} | {steps / seconds:.0f} | "
                f"{min(at_once, job.cohort)} | {f'{peak:.0f} MB' if peak else '–'} | {busy()} | "
                f"{times['plain'] / seconds:.2f} |",
                flush=True,
            )


def counts() -> None:
    """Print what ten clients of LeNet ask of the pretend device in a round."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    pretend = import_module("support.pretend")
    pretend.install()
    torch.set_num_threads(1)
    job = replace(JOBS["lenet"], clients=10, samples=56, batch=8)  # seven steps an epoch, as with 448 and 64
    print("| method | engine | epochs | to the device | from it | waits | kernels | kernels a step |")
    print("|---|---|---|---|---|---|---|---|")
    for method, changes in COUNTED.items():
        for engine in ("serial", "vmap"):
            found, steps = {}, {}
            for epochs in (3, 30):
                there = {"engine": {"name": engine, "device": "pretend"}}
                experiment = replace(job, epochs=epochs).experiment.override({**changes, **there})
                with closing(Federation(experiment)) as federation, federation.open() as runner:
                    federation.advance(runner)
                    totals = [workload(request, False).total for request in federation.requests(2, runner)]
                    with pretend.counting() as counting:
                        federation.advance(runner)
                # On vmap a step is one of all clients that still train.
                found[epochs], steps[epochs] = counting(), sum(totals) if engine == "serial" else max(totals)
            each = (found[30].ops - found[3].ops) / (steps[30] - steps[3])
            for epochs, count in found.items():
                print(
                    f"| {method} | {engine} | {epochs} | {count.up} | {count.down} | {count.scalars} | "
                    f"{count.ops:,} | {each:.1f} |",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"{', '.join(JOBS)}; all when none is named")
    parser.add_argument("--device", default="auto", help="one device, such as cuda:1 (default: auto)")
    parser.add_argument("--repeats", type=int, default=5, help="timed rounds of each contender (default: 5)")
    parser.add_argument("--pretend", action="store_true", help="count on the pretend device instead")
    given = parser.parse_args()
    if unknown := [name for name in given.jobs if name not in JOBS]:
        parser.error(f"there is no job '{unknown[0]}'; there are {', '.join(JOBS)}")
    if given.repeats < 1:
        parser.error(f"--repeats: found {given.repeats}; expected 1 or more")
    if given.pretend:
        counts()
        return
    try:
        (device,) = find_devices(given.device, "--device")
    except ConfigError as error:
        parser.error(str(error))
    free = free_memory(device)
    built = ", ".join(
        f"{name} {version}"
        for name, version in (("CUDA", torch.version.cuda), ("ROCm", torch.version.hip))
        if version
    )
    print(
        f"Mnemos {__version__}, torch {torch.__version__} ({built or 'built without CUDA and ROCm'}), "
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )
    print(f"{device}: {describe(device)}" + (f", {free / 1e9:.1f} GB free" if free else "") + "\n")
    print("| job | contender | rounds / s | steps / s | clients at once | peak memory | busy | × plain |")
    print("|---|---|---|---|---|---|---|---|")
    for name in given.jobs or JOBS:
        bench(name, JOBS[name], device, given.repeats)
    if device == CPU:
        print("\nThere is no accelerator: these are the CPU's figures.")


if __name__ == "__main__":
    main()
