"""Fuzz everything that reads from outside: a result or a clean error, whatever the input.

    python tools/fuzz.py [--inputs 100000] [--seed 0] [--only WORD] [--out fuzz]

The inputs are spread over all targets of tests/fuzzing. Each target runs in a process of its own, so that an
input that kills the process is a finding like any other. What fails is written to a file in `out`, made as
small as hypothesis can, and `--repeat FILE` tries it again.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from fuzzing.attempt import Target

_TESTS = Path(__file__).parents[1] / "tests"
_STUCK = 120
"""Seconds after which an input has the process killed, if nothing else has ended it."""


@dataclass(frozen=True)
class Found:
    """What came of a target."""

    inputs: int
    refused: int
    seconds: float
    failures: dict[str, Path]
    """The file with the smallest input, by kind of failure."""


def main() -> None:
    """Run all targets one after the other; the exit code is 1 if anything was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=100_000, help="over all targets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="targets whose names hold this word")
    parser.add_argument("--out", type=Path, default=Path("fuzz"), help="folder for inputs that fail")
    parser.add_argument("--repeat", type=Path, help="a file with an input to try again; needs --only")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    sys.path.insert(0, str(_TESTS))
    from fuzzing.targets import TARGETS

    names = [given.only] if given.only in TARGETS else [name for name in TARGETS if given.only in name]
    if not names:
        parser.error(f"there is no target with '{given.only}' in its name")
    if given.repeat is not None:
        _repeat(names[0], given.repeat)
        return
    if given.child:
        _child(names[0], given.inputs, given.seed, given.out)
        return
    bad = total = 0
    begin = time.perf_counter()
    print(f"{'target':26} {'inputs':>7} {'read':>7} {'refused':>7} {'seconds':>8}", flush=True)
    for number, name in enumerate(names):
        share = given.inputs * (number + 1) // len(names) - given.inputs * number // len(names)
        found = _target(name, share, given.seed, given.out)
        bad, total = bad + len(found.failures), total + found.inputs
        read = found.inputs - found.refused
        print(f"{name:26} {found.inputs:7} {read:7} {found.refused:7} {found.seconds:8.1f}", flush=True)
        for kind, file in found.failures.items():
            print(f"    {kind}: {file}", flush=True)
    seconds = time.perf_counter() - begin
    print(f"{total} inputs, {bad} kinds of failure, {seconds:.0f} s, seed {given.seed}")
    raise SystemExit(bool(bad))


def _target(name: str, inputs: int, seed: int, out: Path) -> Found:
    """Fuzz one target in a process of its own."""
    folder = out / re.sub(r"\W+", "-", name)
    options = {"only": name, "inputs": inputs, "seed": seed, "out": folder}
    words = [sys.executable, __file__, "--child", *(f"--{key}={value}" for key, value in options.items())]
    begin = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    seconds = time.perf_counter() - begin
    last = folder / "last"
    if done.returncode:
        sys.stderr.write(done.stderr[-3000:])
        return Found(inputs, 0, seconds, {f"the process ended with {done.returncode}": last})
    last.unlink(missing_ok=True)
    tally = json.loads(done.stdout.splitlines()[-1])
    failures = {kind: Path(file) for kind, file in tally["failures"].items()}
    if not failures:
        folder.rmdir()
    return Found(tally["inputs"], tally["refused"], seconds, failures)


def _child(name: str, inputs: int, seed: int, folder: Path) -> None:
    from fuzzing.attempt import fuzz

    folder.mkdir(parents=True, exist_ok=True)
    last = (folder / "last").open("wb", buffering=0)

    def seen(content: bytes) -> None:
        last.seek(0)
        last.truncate()
        last.write(content)
        faulthandler.dump_traceback_later(_STUCK, exit=True)

    with _made(name) as target:
        tally = fuzz(target, inputs, seed, seen)
    files = {}
    for number, (kind, content) in enumerate(tally.failures.items()):
        file = folder / f"{number}.bin"
        file.write_bytes(content)
        files[kind] = str(file)
    print(json.dumps({"inputs": tally.inputs, "refused": tally.refused, "failures": files}))


def _repeat(name: str, file: Path) -> None:
    from fuzzing.attempt import attempt

    with _made(name) as target:
        read = attempt(target, file.read_bytes())
    print(f"{name}: {'read' if read else 'refused'}")


@contextmanager
def _made(name: str) -> Iterator[Target]:
    """A target with a folder and a cache of its own, and no network."""
    from fuzzing.targets import TARGETS

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        os.environ |= {"MNEMOS_CACHE": cache, "MNEMOS_DATA": cache, "MNEMOS_OFFLINE": "1"}
        yield TARGETS[name](Path(folder))


if __name__ == "__main__":
    main()
