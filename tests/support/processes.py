"""Processes that can really be killed, without the seconds that each would take to import PyTorch.

They are forked from a process that has imported Mnemos and done nothing else, and that ends with this one.
"""

import json
import multiprocessing
import os
import runpy
import signal
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import Pipe
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import mnemos as mnemos_package
from mnemos.common.cores import VARIABLE
from mnemos.studies import worker
from mnemos.studies.process import WorkerProcess

T = TypeVar("T")

LONG = 240
"""Seconds after which something is taken to hang."""

_DRAWING = ["matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg"]
_LATER = ["pyarrow.pandas_compat", "numpy.ctypeslib", "torch._dynamo"]
"""What libraries import when they are first used: PyTorch's `vmap` takes two seconds."""
_ELSEWHERE = ("mnemos.deployment", "mnemos.track", "mnemos.engines.ray", "mnemos.__main__")
"""What imports other people's runtimes, which may start threads."""


def _modules() -> list[str]:
    """All of Mnemos that a command would import once it is called."""
    package = Path(mnemos_package.__file__).parent
    files = (path.relative_to(package.parent).with_suffix("") for path in sorted(package.rglob("*.py")))
    names = (".".join(path.parts).removesuffix(".__init__") for path in files)
    return [name for name in names if not name.startswith(_ELSEWHERE)]


_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([*_modules(), *_DRAWING, *_LATER])


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it printed."""

    code: int
    out: str
    err: str


def wait_for(found: Callable[[], T], what: str) -> T:
    """What is found, as soon as there is something."""
    end = time.monotonic() + LONG
    while not (value := found()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.05)
    return value


@contextmanager
def forked(function, *arguments):
    """A process that runs a function of a module; if it is still there in the end, it is killed."""
    process = _context.Process(target=function, args=arguments)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join(60)


class Command:
    """`mnemos` with some words in a process of its own, which ends with the block it is used in.

    It is the first of its group, as a command at a terminal is.
    `pretend` gives it pretend devices.
    """

    def __init__(self, *words, cwd, pretend=False):
        self._said = TemporaryDirectory()
        surroundings = _Surroundings(str(cwd), self._said.name, dict(os.environ), pretend)
        arguments = ([str(word) for word in words], surroundings)
        self.process = _context.Process(target=_command, args=arguments)
        self.process.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.send(signal.SIGKILL)
        self.process.join(60)
        self._said.cleanup()

    @property
    def out(self):
        """What it has printed so far."""
        return self._text("out")

    @property
    def err(self):
        """What it has said beside it so far."""
        return self._text("err")

    def _text(self, name):
        path = Path(self._said.name) / name
        return path.read_text() if path.exists() else ""

    def line(self, number, name="out"):
        """A line that it prints, as soon as it is whole."""
        wait_for(lambda: self._text(name).count("\n") > number or self.ended_already, f"line {number}")
        return self._text(name).splitlines()[number]

    @property
    def ended_already(self):
        """Whether it has ended, for whatever reason."""
        return self.process.exitcode is not None

    def send(self, number):
        """Send it a signal, if it is still there."""
        if self.process.is_alive():
            os.kill(self.process.pid, number)

    def ended(self, seconds=LONG):
        """How it ends, which takes it no longer than some seconds."""
        self.process.join(seconds)
        assert self.ended_already, f"it hangs: {self.out} {self.err}"
        return Ended(self.process.exitcode, self.out, self.err)


@contextmanager
def started(words, folder):
    """`mnemos` with some words in a folder, which gets what it prints: `out` and `err`."""
    surroundings = _Surroundings(str(folder), str(folder), dict(os.environ))
    with forked(_command, [str(word) for word in words], surroundings) as process:
        yield process


def mnemos(*words, cwd):
    """What `mnemos … --json` ends with, if all goes well."""
    with started([*words, "--json"], cwd) as process:
        process.join(LONG)
        assert process.exitcode == 0, (cwd / "err").read_text()
    return json.loads((cwd / "out").read_text().splitlines()[-1])


def script(path, *words, cwd, **variables):
    """How `python path words…` ends in a folder, with some variables of the environment."""
    with TemporaryDirectory() as said:
        with forked(_script, [str(path), *map(str, words)], str(cwd), said, variables) as process:
            process.join(LONG)
        return Ended(process.exitcode, *((Path(said) / name).read_text() for name in ("out", "err")))


class Worker(WorkerProcess):
    """A worker of a study like any other, but forked: `forked_workers` has studies use it."""

    def __init__(self, cores):
        self.connection, theirs = Pipe()
        self.forked = _context.Process(target=_work, args=(theirs, {**os.environ, VARIABLE: str(cores)}))
        self.forked.start()
        theirs.close()

    def end(self):
        """Wait until it has stopped; says how it ended."""
        self.release()
        self.forked.join(LONG)
        return f"its process ended with code {self.forked.exitcode}"


def _work(connection, environment):
    with open(os.devnull, "wb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    os.setpgid(0, 0)
    sys.argv = ["worker", str(connection.fileno())]
    worker.main()


@dataclass(frozen=True)
class _Surroundings:
    """Where a command runs, where what it prints goes, and its environment."""

    folder: str
    said: str
    environment: dict[str, str]
    pretend: bool = False


def _command(words, surroundings):
    os.setpgid(0, 0)
    _print_into(surroundings.said)
    os.chdir(surroundings.folder)
    os.environ.clear()
    os.environ.update(surroundings.environment)
    if surroundings.pretend:
        import_module("support.pretend").install()
    sys.argv = ["mnemos", *words]
    from mnemos.cli.app import main

    main()


def _script(words, folder, said, variables):
    _print_into(said)
    os.chdir(folder)
    os.environ |= variables
    sys.argv = words
    sys.path.insert(0, str(Path(words[0]).parent))
    runpy.run_path(words[0], run_name="__main__")


def _print_into(folder):
    for name, number in (("out", 1), ("err", 2)):
        with (Path(folder) / name).open("wb") as file:
            os.dup2(file.fileno(), number)


def sweeping(place: Path, *words: str) -> Command:
    """`mnemos sweep rates.yaml` in a process of its own, in the folder `place`."""
    return Command("sweep", "rates.yaml", "--out", "runs", "--json", *words, cwd=place)
