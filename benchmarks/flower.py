"""What a round costs over Flower: by `mnemos federate join`, and by a fresh process for every message.

    python benchmarks/flower.py [--rounds 10] [--owners 2]

Owners are processes on this machine, with 500 samples of CIFAR's shape each and a LeNet; a round is one pass
over them. Printed is a row a way: seconds a round (the median of all but the first), what is left of it when
the same training in one process is taken off, and that as a ratio to the first way.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from mnemos.data.sources.npz import write_npz
from mnemos.deployment.conduct import Wait, conduct
from mnemos.deployment.grid import GridLink
from mnemos.deployment.processes import free_port
from mnemos.deployment.serve import ServerSettings, connected
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation, Outcome
from mnemos.runs.execute import Silent

Node = Callable[[Path, str, int], list[str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--owners", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = [_samples(folder, number) for number in range(args.owners)]
        alone = _alone(_experiment(data, args.rounds))
        print(f"{'':32}{'s a round':>10}{'over':>8}{'ratio':>8}")
        print(f"{'one process':32}{alone:10.2f}")
        first = None
        for way, node in (("mnemos federate join", _joining), ("a process for every message", _fresh)):
            seconds = _federated(folder / way.replace(" ", "-"), data, args.rounds, node)
            over = seconds - alone
            first = first or over
            print(f"{way:32}{seconds:10.2f}{over:8.2f}{over / first:8.2f}", flush=True)


class _Clock(Silent):
    """When rounds end."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def round(self, outcome: Outcome) -> None:
        self.ends.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        """A round's, the first left out."""
        return statistics.median(np.diff(self.ends).tolist())


def _samples(folder: Path, number: int) -> Path:
    generator = np.random.default_rng(number)
    images = generator.integers(0, 256, (625, 3, 32, 32), np.uint8)
    return write_npz(folder / f"owner{number}.npz", (images, np.arange(625) % 10))


def _experiment(data: list[Path], rounds: int) -> Experiment:
    return Experiment.parse(
        {
            "data": {"name": "owners", "paths": [str(path) for path in data]},
            "partition": {"name": "natural", "validation": 0.0},
            "model": "lenet",
            "participation": 1.0,
            "local": {"epochs": 1, "batch": 50, "lr": 0.01},
            "rounds": rounds,
            "evaluate": {"every": rounds, "test_last": 0},
            "engine": "threads",
        }
    )


def _alone(experiment: Experiment) -> float:
    clock = _Clock()
    federation = Federation(experiment)
    with federation.open() as runner:
        for _ in range(experiment.rounds):
            clock.round(federation.advance(runner))
    federation.close()
    return clock.seconds


def _federated(folder: Path, data: list[Path], rounds: int, node: Node) -> float:
    folder.mkdir()
    settings, clock = ServerSettings(folder / "home", "127.0.0.1", free_port(), plain=True), _Clock()
    with connected(settings) as (grid, known), _started(folder, data, settings.port, node):
        link = GridLink(grid, known)
        wait = Wait(len(data), 300.0)
        conduct(_experiment(data, rounds), link, folder / "runs", wait, clock, lambda _line: None)
    return clock.seconds


@contextmanager
def _started(folder: Path, data: list[Path], port: int, node: Node) -> Iterator[None]:
    processes = []
    try:
        for path in data:
            log = (folder / f"{path.stem}.log").open("wb")
            environment = {
                **os.environ,
                "FLWR_HOME": str(folder / path.stem),
                "FLWR_TELEMETRY_ENABLED": "0",
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            }
            command = node(folder, str(path), port)
            processes.append(
                subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=folder)
            )
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


def _joining(folder: Path, data: str, port: int) -> list[str]:
    words = ["join", "--plain", "--server", f"localhost:{port}", "--data", data]
    return [sys.executable, "-m", "mnemos", "federate", *words, "--folder", str(folder / Path(data).stem)]


def _fresh(folder: Path, data: str, port: int) -> list[str]:
    program = str(Path(sys.executable).with_name("flower-supernode"))
    name = Path(data).stem
    config = f'data="{data}" name="{name}" folder="{folder / name}"'
    words = ["--insecure", "--superlink", f"localhost:{port}", "--port", str(free_port())]
    return [program, *words, "--node-config", config]


if __name__ == "__main__":
    main()
