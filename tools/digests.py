"""The net of experiments: find out whether a change to the sources has changed any bit of any result.

    python tools/digests.py run OUT.json [--src PATH] [--only PATTERN]...
    python tools/digests.py compare BEFORE.json AFTER.json [--map OLD=NEW ...] [--expect NAME,...]
    python tools/digests.py coverage [--src PATH] [--options]
    python tools/digests.py list

`run` runs the tiny experiments of digests_matrix.py, which together use every part of Mnemos, and writes
digests of what each run leaves: the model, its buffers, the state of the server and of the clients, the
metrics. Run the same copy of this tool against the sources of two commits, on the same machine, and compare.
`compare` exits with 1 if anything differs that was not announced, `run` if an experiment failed or differs
from its twin, and `coverage` if a part of Mnemos has no experiment.

The tool depends on `mnemos.run`, `mnemos.resume`, `mnemos.Run`, `mnemos.Experiment` and `mnemos.write_npz`
alone; only `_saved` knows the files that a run keeps its state in.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from digests_compare import Result, Results, compare, differences, read_mappings
from digests_matrix import ROWS, Row

_ROOT = Path(__file__).parents[1]
_ROWS_PER_BLOCK = 256
"""Rows that the file of clients' states grows by, if they are as narrow as those of a tiny model."""
_RAW = "raw/"
"""Begins the names of whole files, with rows that are out of date: a resumed run has others of them."""


# What a run leaves.


@dataclass
class Digest:
    """A digest of some numbers in their order, and their norm: it tells rounding from real changes."""

    _hash: Any = field(default_factory=hashlib.sha256)
    _squares: float = 0.0
    _size: int = 0

    def add(self, label: str, values: NDArray[Any]) -> None:
        """Take up an array, with its type and shape, under a label."""
        self._hash.update(f"{label} {values.dtype} {values.shape}\n".encode())
        self._hash.update(np.ascontiguousarray(values).tobytes())
        finite = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        self._squares += float((finite**2).sum())
        self._size += values.size

    def result(self) -> dict[str, Any]:
        """As it is written down."""
        return {"sha256": self._hash.hexdigest(), "size": self._size, "norm": math.sqrt(self._squares)}


def digests_of(run: Any) -> dict[str, dict[str, Any]]:
    """The digests of all that a run has left, by name."""
    found: dict[str, Digest] = {}

    def take(name: str, label: str, values: NDArray[Any]) -> None:
        found.setdefault(name, Digest()).add(label, values)

    if run.status.status == "finished":
        module = run.model()
        for place, tensor in enumerate(module.parameters()):
            take("model", str(place), tensor.detach().numpy())
        for place, tensor in enumerate(module.buffers()):
            take("buffers", str(place), tensor.numpy())
    for name, label, tensor in _saved(Path(run.path)):
        take(name, label, tensor.numpy())
    for row in run.metrics.to_dict("records"):
        known = {column: value for column, value in sorted(row.items()) if not pd.isna(value)}
        name, value = known.pop("name"), known.pop("value", math.nan)
        take(f"metrics/{name}", f"{known}", np.array(value, np.float64))
    return {name: digest.result() for name, digest in sorted(found.items())}


def _saved(path: Path) -> Iterator[tuple[str, str, Tensor]]:
    """(name, label, tensor) of what a run needs to go on: the one place that knows its files.

    There is no public way to the state of a run. If its files change, teach this function the new ones beside
    the old: the same tool has to read the runs of both commits, and to call the same thing by the same name.
    """
    newest = max((path / "checkpoints").glob("*.safetensors"))
    tensors = load_file(newest)
    clients, rows = tensors.pop("clients"), tensors.pop("rows")
    for name, tensor in sorted(tensors.items()):
        yield f"state/{name}", "", tensor
    files = sorted(path.glob("clients*.bin"))
    if len(files) == 1 and len(clients):
        table = torch.from_file(str(files[0]), size=files[0].stat().st_size // 4).view(_ROWS_PER_BLOCK, -1)
        for client, row in sorted(zip(clients.tolist(), rows.tolist(), strict=True)):
            yield "clients", str(client), table[row]
    else:  # of several models: which file has the state of which client is nowhere written down
        for file in files:
            yield f"{_RAW}{file.name}", "", torch.from_file(str(file), size=file.stat().st_size // 4)


# Carrying out experiments.


class _Interrupter:
    """An observer that interrupts a run after a round, and takes no notice of anything else."""

    run: Any = None

    def __init__(self, after: int) -> None:
        self._after = after
        self.done = False

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_options: None

    def round(self, outcome: Any) -> None:
        """A round is finished and saved."""
        if outcome.round >= self._after:
            self.done = True
            raise KeyboardInterrupt


def run_row(row: Row, files: Path, out: Path) -> Result:
    """Carry out one experiment; whatever goes wrong with it is its result."""
    import mnemos

    experiment = _filled(row.experiment, files)
    try:
        mnemos.Experiment.model_validate(experiment)
    except Exception as error:  # of which class depends on the sources
        return {"unknown": _sentence(error)}
    try:
        _carry_out(row, experiment, out)
    except Exception as error:
        if row.ends == "finished" or not list(out.glob("*")):
            return {"failed": _sentence(error)}
    try:
        run = mnemos.Run.at(_only(out))
        if run.status.status != row.ends:
            return {"failed": f"the run is {run.status.status}, not {row.ends}"}
        return {"rounds": run.status.rounds, "digests": digests_of(run)}
    except Exception as error:
        return {"failed": f"what the run has left can't be read ({_sentence(error)})"}


def _carry_out(row: Row, experiment: Mapping[str, Any], out: Path) -> None:
    import mnemos

    if row.interrupt is None:
        mnemos.run(experiment, out=out)
    else:
        interrupter = _Interrupter(row.interrupt)
        try:
            mnemos.run(experiment, out=out, observer=interrupter)
        except KeyboardInterrupt:
            if not interrupter.done:  # it was someone at the keyboard
                raise
        if not interrupter.done:
            raise RuntimeError("the run was not interrupted")
        mnemos.resume(_only(out))
    if row.extend is not None:
        mnemos.resume(_only(out), row.extend)


def _only(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def _filled(value: Any, files: Path) -> Any:
    """An experiment with the names of the generated files."""
    if isinstance(value, str):
        return value.replace("{files}", str(files))
    if isinstance(value, Mapping):
        return {key: _filled(entry, files) for key, entry in value.items()}
    return [_filled(entry, files) for entry in value] if isinstance(value, list) else value


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def generate(files: Path, rows: Iterable[Row]) -> None:
    """The files that experiments read: arrays and images drawn from a seed, and models to start from."""
    import mnemos

    draw = np.random.default_rng(0)
    images, labels = _images(draw, 500, 10)
    mnemos.write_npz(files / "base.npz", (images[:400], labels[:400]), (images[400:], labels[400:]))
    images, labels = _images(draw, 240, 4)
    owners = np.sort(draw.integers(0, 6, 240))
    mnemos.write_npz(files / "owned.npz", (images, labels), owners=owners)
    features = (images.reshape(240, -1)[:, :20] / 255).astype(np.float32)
    mnemos.write_npz(files / "features.npz", (features, labels))
    cells = [",".join([*map(str, row), str(label)]) for row, label in zip(features, labels, strict=True)]
    names = [f"x{column}" for column in range(features.shape[1])]
    (files / "features.csv").write_text("\n".join([",".join([*names, "y"]), *cells]) + "\n")
    texts = [f"word{label} and word{number % 7},{label}" for number, label in enumerate(labels)]
    (files / "texts.csv").write_text("\n".join(["text,label", *texts]) + "\n")
    for name, part in (("one", slice(0, 60)), ("two", slice(60, 140)), ("three", slice(140, 240))):
        mnemos.write_npz(files / f"{name}.npz", (images[part], labels[part]))
    for number, (image, label) in enumerate(zip(images[:80], labels, strict=False)):
        folder = files / "images" / f"class-{label}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number:03d}.png")
    for row, name in (("method/fedavg/ce", "model"), ("server/replace", "batch-norm")):
        if any(f"{name}.safetensors" in json.dumps(asked.experiment) for asked in rows):
            first = _filled({**ROWS[row].experiment, "rounds": 1, "seed": 8}, files)
            run = mnemos.run(first, out=files / f"{name}-run")
            run.file("model.safetensors").rename(files / f"{name}.safetensors")


def _images(draw: np.random.Generator, count: int, classes: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Images of 8×8 pixels, each the pattern of its class with noise, and their labels."""
    labels = np.arange(count) % classes
    patterns, noise = draw.integers(0, 100, (classes, 8, 8)), draw.integers(0, 156, (count, 8, 8))
    return (patterns[labels] + noise).astype(np.uint8), labels


def run_rows(rows: Mapping[str, Row], folder: Path) -> Iterator[tuple[str, Result, float]]:
    """(name, result, seconds of processor time) of one experiment after the other, in an empty folder."""
    files = folder / "files"
    files.mkdir()
    os.environ |= {
        "MNEMOS_CACHE": str(folder / "cache"),  # no encoder and no choice of an engine from an earlier run
        "MNEMOS_DATA": str(folder / "data"),
        "MNEMOS_OFFLINE": "1",
        "MNEMOS_SECRET": "digests " * 8,
    }
    torch.set_num_threads(1)  # idle threads of OpenMP cost time
    generate(files, rows.values())
    for number, (name, row) in enumerate(rows.items()):
        begin = time.process_time()
        out = folder / f"run-{number}"
        out.mkdir()
        yield name, run_row(row, files, out), time.process_time() - begin


def unlike(rows: Mapping[str, Row], results: Mapping[str, Result]) -> Iterator[str]:
    """Experiments that were carried out in two ways, and the names of the digests that differ."""
    for name, row in rows.items():
        one, other = (results.get(twin, {}).get("digests") for twin in (row.like or "", name))
        found = differences(one, other) if one and other else []
        if wrong := [difference for difference in found if not difference.startswith(_RAW)]:
            yield f"{name} differs from {row.like}: {', '.join(wrong)}"


# The command line.


def _use(source: Path) -> Path:
    """Have `mnemos` imported from these sources; a repository's root is as good as its `src`."""
    folder = next((place for place in (source / "src", source) if (place / "mnemos").is_dir()), None)
    if folder is None:
        raise SystemExit(f"digests: {source}: there is no folder 'mnemos' or 'src/mnemos' here")
    sys.path.insert(0, str(folder.resolve()))
    import mnemos

    if not Path(mnemos.__file__).is_relative_to(folder.resolve()):
        raise SystemExit(f"digests: mnemos comes from {mnemos.__file__}, not from {folder}")
    return folder


def _git(folder: Path, *words: str) -> str:
    with suppress(OSError, subprocess.CalledProcessError):
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()
    return ""


def _about(source: Path) -> dict[str, Any]:
    """The sources and the machine that digests belong to; `tree` is the same for the same sources."""
    return {
        "commit": _git(source, "rev-parse", "HEAD"),
        "tree": _git(source, "rev-parse", "HEAD:./"),
        "changed": bool(_git(source, "status", "--porcelain", "--", ".")),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "processor": _processor(),
    }


def _processor() -> str:
    """Its model, as digests of different ones can't be compared."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _chosen(patterns: list[str]) -> dict[str, Row]:
    """The rows that match a pattern; all, if there is none."""
    for pattern in patterns:
        if not fnmatch.filter(ROWS, pattern):
            raise SystemExit(f"digests: no experiment is called {pattern}; 'list' shows the names")
    return {
        name: row
        for name, row in ROWS.items()
        if not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }


def _run(options: argparse.Namespace) -> int:
    source, rows = _use(options.src), _chosen(options.only)
    begin, results, slow = time.process_time(), {}, []
    with tempfile.TemporaryDirectory(prefix="digests-") as folder:
        for name, result, seconds in run_rows(rows, Path(folder)):
            results[name] = result
            slow.append((seconds, name))
            for problem in ("unknown", "failed"):
                if problem in result:
                    print(f"{name}: {problem} there: {result[problem]}", flush=True)
    wrong = list(unlike(rows, results))
    for sentence in wrong:
        print(sentence)
    found: Results = {"about": _about(source), "experiments": results}
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    failed = sum("failed" in result for result in results.values())
    unknown = sum("unknown" in result for result in results.values())
    print(
        f"{len(results)} experiments in {time.process_time() - begin:.0f} s of processor time, "
        f"{failed} failed, {unknown} unknown there, {len(wrong)} unlike their twins; slowest: "
        + ", ".join(f"{name} {seconds:.1f} s" for seconds, name in sorted(slow, reverse=True)[:5])
    )
    return 1 if failed or wrong else 0


def _compare(options: argparse.Namespace) -> int:
    mappings = read_mappings([*(options.maps.read_text().splitlines() if options.maps else ()), *options.map])
    before, after = (json.loads(path.read_text()) for path in (options.before, options.after))
    expected = [name for names in options.expect for name in names.split(",") if name]
    lines, fine = compare(before, after, mappings, expected)
    print("\n".join(lines))
    return 0 if fine else 1


def _coverage(options: argparse.Namespace) -> int:
    _use(options.src)
    from digests_coverage import choices_left, parts_left

    left = parts_left(ROWS.values())
    for sentence in left:
        print(f"not covered: {sentence}")
    for sentence in choices_left(ROWS.values()) if options.options else ():
        print(f"never set: {sentence}")
    print(f"{len(ROWS)} experiments; {len(left)} parts not covered")
    return 1 if left else 0


def _list(_options: argparse.Namespace) -> int:
    print("\n".join(ROWS))
    return 0


def main(words: list[str] | None = None) -> int:
    """What the words ask for; gives the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="carry out the experiments and write their digests")
    run.add_argument("out", type=Path, help="the JSON file to write")
    run.add_argument("--only", action="append", default=[], metavar="PATTERN", help="such as 'method/*'")
    run.set_defaults(do=_run)

    comparing = commands.add_parser("compare", help="say which experiments differ")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="a digest has another name now, such as metrics/old=metrics/new; 'OLD=': it is gone, '=NEW': it "
        "is new; a * at the end of both stands for the rest",
    )
    comparing.add_argument("--maps", type=Path, metavar="FILE", help="the same, one a line; # for remarks")
    comparing.add_argument(
        "--expect",
        action="append",
        default=[],
        metavar="NAME,...",
        help="experiments that change on purpose; patterns such as 'privacy/*'",
    )
    comparing.set_defaults(do=_compare)

    coverage = commands.add_parser("coverage", help="list the parts of Mnemos that no experiment uses")
    coverage.add_argument("--options", action="store_true", help="also choices of options never made")
    coverage.set_defaults(do=_coverage)

    for command in (run, coverage):
        command.add_argument("--src", type=Path, default=_ROOT, help="the sources: a repository or its src")
    commands.add_parser("list", help="the names of all experiments").set_defaults(do=_list)
    options = parser.parse_args(words)
    code: int = options.do(options)
    return code


if __name__ == "__main__":
    sys.exit(main())
