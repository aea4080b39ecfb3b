"""Processes that can really be killed, without the seconds that each would take to import PyTorch.

They are forked from a process that has imported Mnemos and done nothing else, and that ends with this one.
"""

import json
import multiprocessing
import os
import runpy
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mnemos.cli.app import COMMANDS

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([f"mnemos.cli.{name}" for name in COMMANDS])


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it printed."""

    code: int
    out: str
    err: str


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


@contextmanager
def started(words, folder):
    """`mnemos` with some words in a folder, which gets what it prints: `out` and `err`."""
    with forked(_mnemos, [str(word) for word in words], str(folder)) as process:
        yield process


def mnemos(*words, cwd):
    """What `mnemos … --json` ends with, if all goes well."""
    with started([*words, "--json"], cwd) as process:
        process.join(240)
        assert process.exitcode == 0, (cwd / "err").read_text()
    return json.loads((cwd / "out").read_text().splitlines()[-1])


def script(path, *words, cwd, **variables):
    """How `python path words…` ends in a folder, with some variables of the environment."""
    with TemporaryDirectory() as said:
        with forked(_script, [str(path), *map(str, words)], str(cwd), said, variables) as process:
            process.join(240)
        return Ended(process.exitcode, *((Path(said) / name).read_text() for name in ("out", "err")))


def _mnemos(words, folder):
    os.chdir(folder)
    _print_into(folder)
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
