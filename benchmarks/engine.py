"""How long a round takes: Mnemos beside hand-written PyTorch loops that do the same gradient steps.

    python benchmarks/engine.py [lenet] [mlp] [resnet] [--repeats 5]

All contenders run in turn in the same process, so a busy machine slows them alike; printed are medians and
their ratios. `plain` is the loop everybody writes first: clients one after the other, eager, PyTorch's
default threads. `best` is the fastest loop we know how to write by hand: one thread a core with a replica
of its own, one intra-op thread each, channels-last.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mnemos.client.trainer import fresh_model
from mnemos.data.dataset import Dataset, Source, Split
from mnemos.data.load import load
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation


class Random(Source):
    """Images of random bytes: training takes as long as on real ones."""

    count: int
    shape: tuple[int, int, int]
    test: int = 1_000

    def load(self) -> Dataset:
        generator = torch.Generator().manual_seed(0)
        samples = torch.randint(256, (self.count, *self.shape), generator=generator, dtype=torch.uint8)
        labels = torch.randint(10, (self.count,), generator=generator)
        test = Split(samples[: self.test], labels[: self.test])
        scale = (127.5,) * self.shape[0]
        return Dataset("random", Split(samples, labels), test, tuple("0123456789"), scale, scale)


@dataclass(frozen=True)
class Job:
    """One row of the benchmark."""

    model: dict[str, object]
    shape: tuple[int, int, int]
    clients: int
    samples: int
    cohort: int
    epochs: int
    batch: int
    lr: float = 0.05
    rounds: int = 1_000

    @property
    def experiment(self) -> Experiment:
        return Experiment.parse(
            {
                "data": Random(count=self.clients * self.samples, shape=self.shape),
                "partition": {"name": "iid", "clients": self.clients, "validation": 0},
                "model": self.model,
                "local": {"epochs": self.epochs, "batch": self.batch, "lr": self.lr, "weight_decay": 1e-4},
                "participation": self.cohort / self.clients,
                "rounds": self.rounds,
                "evaluate": {"every": self.rounds, "test_last": 0},
            }
        )


JOBS = {
    "lenet": Job({"name": "lenet"}, (3, 32, 32), 100, 450, 10, epochs=3, batch=64),
    "mlp": Job({"name": "mlp", "hidden": [64]}, (1, 8, 8), 100, 64, 100, epochs=5, batch=16),
    "resnet": Job({"name": "resnet18"}, (3, 32, 32), 4, 128, 2, epochs=1, batch=64),
}


class Loop:
    """A hand-written FedAvg round."""

    def __init__(self, job: Job, threads: int, channels_last: bool) -> None:
        experiment = job.experiment
        dataset = load(experiment.data)
        self.job, self.threads, self.channels_last = job, threads, channels_last
        self.x = (dataset.train.samples.float() - 127.5) / 127.5
        self.y = dataset.train.labels
        self.model = fresh_model(experiment.plan, dataset)
        if channels_last:
            self.x = self.x.contiguous(memory_format=torch.channels_last)
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))

    def client(self, k: int) -> dict[str, Tensor]:
        job, model = self.job, copy.deepcopy(self.model).train()
        own = torch.arange(k * job.samples, (k + 1) * job.samples)
        optimizer = torch.optim.SGD(model.parameters(), lr=job.lr, weight_decay=1e-4)
        for _ in range(job.epochs):
            for rows in torch.split(own[torch.randperm(len(own))], job.batch):
                optimizer.zero_grad()
                F.cross_entropy(model(self.x[rows]), self.y[rows]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        return model.state_dict()

    def round(self) -> None:
        chosen = torch.randperm(self.job.clients)[: self.job.cohort].tolist()
        if self.threads == 1:
            states = [self.client(k) for k in chosen]
        else:
            torch.set_num_threads(1)
            states = list(self.pool.map(self.client, chosen))
            torch.set_num_threads(os.cpu_count() or 1)
        mean = {
            name: torch.stack([state[name].float() for state in states]).mean(0).to(states[0][name].dtype)
            for name in states[0]
        }
        self.model.load_state_dict(mean)


def measure(contenders: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each contender, one after the other in every repeat."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for repeat in range(repeats + 1):
        for name, work in contenders.items():
            begin = time.perf_counter()
            work()
            if repeat:  # the first one warms up
                times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values) for name, values in times.items()}


def bench(name: str, job: Job, repeats: int) -> None:
    plain, best = Loop(job, 1, False), Loop(job, os.cpu_count() or 1, True)
    with closing(Federation(job.experiment)) as federation, federation.open() as runner:
        begin = time.perf_counter()
        federation.advance(runner)
        first = time.perf_counter() - begin
        times = measure(
            {"plain": plain.round, "best": best.round, "mnemos": lambda: federation.advance(runner)}, repeats
        )
        print(f"{name}: {job}")
        print(f"  engine: {runner.engine.dump()}; {runner.why}")
        print(f"  first round, with the choice of an engine (and compiling): {first:.1f} s")
        for contender, seconds in times.items():
            print(f"  {contender:7s} {1e3 * seconds:10.1f} ms a round")
        print(f"  mnemos / best loop  = {times['mnemos'] / times['best']:.2f}")
        print(f"  plain loop / mnemos = {times['plain'] / times['mnemos']:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("jobs", nargs="*", help="lenet, mlp, resnet; all when none is named")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--remember", action="store_true", help="use remembered choices of an engine")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not arguments.remember:
            os.environ["MNEMOS_CACHE"] = folder
        for name in arguments.jobs or JOBS:
            bench(name, JOBS[name], arguments.repeats)


if __name__ == "__main__":
    main()
