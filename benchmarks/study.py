"""What training small runs together gains: 4 learning rates × 4 seeds of the digits MLP, in three ways.

    python benchmarks/study.py [--rounds 100] [--alone 16] [--work plain|steps]

The same 16 runs: by 16 calls of `mnemos run`, one after the other; by `mnemos sweep --jobs 1`, one after the
other in one process; and by `mnemos sweep`, which trains them together. All ways are commands, and include
the start of processes, imports and reading data; engines are chosen by `auto`, once before. With `--alone`,
fewer single runs are done, and their time is scaled to 16. `plain`: the default experiment, whose clients
make one step a round; `steps`: the one of recipes/sweep.yaml, whose clients make twenty. The processor time
says what to expect of a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

RATES, SEEDS = (0.03, 0.05, 0.1, 0.2), (0, 1, 2, 3)
WORKS: dict[str, dict[str, Any]] = {
    "plain": {"data": "digits"},
    "steps": {
        "data": "digits",
        "model": {"name": "mlp", "hidden": [64]},
        "partition": {"name": "dirichlet", "clients": 50, "alpha": 0.1},
        "local": {"epochs": 5, "batch": 8},
        "participation": 0.1,
    },
}


def timed(folder: Path, *commands: list[str]) -> tuple[float, float]:
    """Seconds, and seconds of processor time, of commands one after the other."""
    begin, used = time.perf_counter(), processor()
    for words in commands:
        command = [sys.executable, "-m", "mnemos", *words, "--quiet"]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin, processor() - used


def processor() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--alone", type=int, default=len(RATES) * len(SEEDS), choices=range(1, 17))
    parser.add_argument("--work", choices=WORKS, default="plain")
    given = parser.parse_args()
    base = {**WORKS[given.work], "rounds": given.rounds}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        study = {"base": base, "grid": {"local.lr": list(RATES)}, "seeds": list(SEEDS)}
        (folder / "study.yaml").write_text(yaml.safe_dump(study))
        (folder / "run.yaml").write_text(yaml.safe_dump(base))
        timed(folder, ["run", "run.yaml", "seed=99", "--out", "first"])
        timed(folder, ["sweep", "study.yaml", "rounds=2", "--jobs", "1", "--seeds", "99", "--out", "first"])
        pairs = [(rate, seed) for seed in SEEDS for rate in RATES][: given.alone]
        alone = [
            ["run", "run.yaml", f"local.lr={lr}", f"seed={seed}", "--out", "alone"] for lr, seed in pairs
        ]
        scale = len(RATES) * len(SEEDS) / len(alone)
        seconds, used = (scale * value for value in timed(folder, *alone))
        told("16 × mnemos run", seconds, used)
        ways = {"sweep": ["--out", "together"], "sweep --jobs 1": ["--jobs", "1", "--out", "turn"]}
        for name, words in ways.items():
            own, own_used = timed(folder, ["sweep", "study.yaml", *words])
            told(name, own, own_used)
            print(
                f"  = {own / seconds:.2f} × of the first, {own_used / used:.2f} × of its processor time",
                flush=True,
            )


def told(name: str, seconds: float, used: float) -> None:
    print(f"{name:16} {seconds:6.1f} s, {used:6.1f} s of processor time", flush=True)


if __name__ == "__main__":
    main()
