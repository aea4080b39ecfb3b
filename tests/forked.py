"""Processes that can really be killed, without the seconds that each would take to import PyTorch.

They are forked from a process that has imported Mnemos and done nothing else, and that ends with this one.
"""

import json
import multiprocessing
import os
import sys
from contextlib import contextmanager
from pathlib import Path

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["mnemos.cli.app"])


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


def _mnemos(words, folder):
    os.chdir(folder)
    for name, number in (("out", 1), ("err", 2)):
        with Path(name).open("wb") as file:
            os.dup2(file.fileno(), number)
    sys.argv = ["mnemos", *words]
    from mnemos.cli.app import main

    main()
