"""How long a new user waits: the first word, the first round, the prompt back; lists and completion.

    python benchmarks/first_hour.py [--only digits] [--repeats 3]

Each command runs by itself on a terminal of 80 columns, with an empty cache, so that the engine is chosen as
in a first run. "First word" is the first visible character, "first round" the first counter that isn't 0.
The long trainings get Ctrl-C after their first round: then "prompt back" is measured from Ctrl-C. Images are
made up, in CIFAR-10's shape: nothing is downloaded, and what they show makes no difference to the time.

Times are seconds, and in brackets seconds of processor time, which a busy machine changes much less: of the
command and all of its threads until then. The table is Markdown, for docs/results/speed.md; it has medians.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import signal
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import numpy as np

import mnemos
from mnemos.runs.directory import RunDirectory

CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ROUND = re.compile(r"\b[1-9]\d*/\d+\b")
LIMIT = 600.0
"""Seconds after which a command is given up."""
START = (sys.executable, "-c", "import sys; sys.argv[0] = 'mnemos'; from mnemos.cli import main; main()")

Moment = tuple[float, float]
"""Seconds, and seconds of processor time."""


@dataclass
class Waited:
    """When what was seen; None if it never was."""

    word: Moment | None = None
    round: Moment | None = None
    prompt: Moment | None = None


def used(process: int) -> float:
    """The seconds of processor time that a process has used, with its children that have ended."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def watched(words: Sequence[str], environment: dict[str, str], *, stop: bool) -> Waited:
    """Run a command of Mnemos on a terminal; with `stop`, it gets Ctrl-C after its first round."""
    begin, found, text, since = time.perf_counter(), Waited(), "", (0.0, 0.0)
    process, terminal = pty.fork()
    if not process:
        os.execvpe(START[0], [*START, *words], {**os.environ, "TERM": "xterm", **environment})
    ioctl(terminal, TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))

    def moment() -> Moment:
        return time.perf_counter() - begin, used(process)

    while time.perf_counter() - begin < LIMIT:
        if not select.select([terminal], [], [], 0.02)[0]:
            continue
        try:
            text += CODES.sub("", os.read(terminal, 65536).decode(errors="replace"))
        except OSError:  # the command has closed its terminal
            break
        if found.word is None and text.strip():
            found.word = moment()
        if found.round is None and ROUND.search(text):
            found.round = moment()
            if stop:
                since = found.round
                os.kill(process, signal.SIGINT)
    else:
        os.kill(process, signal.SIGKILL)
    _, status, usage = os.wait4(process, 0)
    os.close(terminal)
    code = os.waitstatus_to_exitcode(status)
    if code != (130 if stop else 0):
        raise RuntimeError(f"{' '.join(words)} ended with code {code}: {text[-500:]}")
    found.prompt = time.perf_counter() - begin - since[0], usage.ru_utime + usage.ru_stime - since[1]
    return found


def many_runs(folder: Path, count: int = 300) -> None:
    """Write runs that `mnemos runs` can list."""
    for number in range(count):
        run = RunDirectory(folder / f"run-{number:03}")
        run.path.mkdir(parents=True)
        run.file("experiment.yaml").touch()
        run.file("status.json").write_text('{"status": "finished", "rounds": 50, "accuracy": 0.9}')


def commands(place: Path) -> dict[str, tuple[list[str], dict[str, str], bool]]:
    """By name: the words of a command, its environment, and whether it is stopped after its first round."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5000, 32, 32, 3), np.uint8), rng.integers(0, 10, 5000)
    mnemos.write_npz(str(place / "images.npz"), images)
    many_runs(place / "many")
    out = ["--out", str(place / "runs")]
    data = ["run", *out, "--data", str(place / "images.npz"), "local.epochs=3", "--clients", "10"]
    words = "run --method fe"
    completion = {
        "_MNEMOS_COMPLETE": "complete_bash",
        "COMP_WORDS": f"mnemos {words}",
        "COMP_CWORD": str(len(words.split())),
    }
    return {
        "digits, 50 rounds": (["run", *out, "--data", "digits"], {}, False),
        "LeNet, 1,000 rounds": ([*data, "--model", "lenet", "--rounds", "1000", "participation=1"], {}, True),
        "ResNet-18, 100 rounds": ([*data, "--model", "resnet18", "--rounds", "100"], {}, True),
        "`mnemos runs` of 300": (["runs", str(place / "many")], {}, False),
        "`mnemos reproduce --list`": (["reproduce", "--list"], {}, False),
        "`mnemos list`": (["list"], {}, False),
        f"completion of `{words}`": ([], completion, False),
    }


def median(moments: Sequence[Moment | None]) -> str:
    """`1.2 (0.8)`: medians of seconds and of processor time; a dash if there are none."""
    known = [moment for moment in moments if moment is not None]
    if not known:
        return "–"
    seconds, processor = (statistics.median(values) for values in zip(*known, strict=True))
    return f"{seconds:.2f} ({processor:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="commands whose name has this word")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print("| | first word | first round | prompt back |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        for number, (name, (words, environment, stop)) in enumerate(commands(place).items()):
            if arguments.only not in name:
                continue
            waited = []
            for repeat in range(arguments.repeats):
                cache = {"MNEMOS_CACHE": str(place / f"cache-{number}-{repeat}")}
                waited.append(watched(words, {**environment, **cache}, stop=stop))
            word, first, back = (
                median(moments)
                for moments in zip(*((one.word, one.round, one.prompt) for one in waited), strict=True)
            )
            print(f"| {name} | {word} | {first} | {back}{' after Ctrl-C' if stop else ''} |", flush=True)


if __name__ == "__main__":
    main()
