"""A command, run in this process, and how it ended."""

from __future__ import annotations

import json
import shlex
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import pytest

with warnings.catch_warnings():
    # Typer 0.20 takes names from click that the newest click warns about.
    warnings.simplefilter("ignore", DeprecationWarning)
    from mnemos.cli.app import main


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be one JSON object and nothing else."""
        (line,) = self.out.splitlines()
        return json.loads(line)


@pytest.fixture(autouse=True)
def _forked_workers(forked_workers):
    """Those of commands in this process; test_sweep_kill.py and test_pool.py have real ones."""


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs a command in this process."""

    def call(line: str, code: int = 0) -> Ended:
        monkeypatch.setattr(sys, "argv", ["mnemos", *shlex.split(line)])
        with pytest.raises(SystemExit) as end:
            main()
        ended = Ended(end.value.code, *capsys.readouterr())
        assert ended.code == code, ended
        return ended

    return call
