"""An interruption of a run, and the result that it must have nevertheless."""

import pytest

from mnemos.runs.execute import Silent, resume, start
from support.bits import assert_same_bits


class Stop(Silent):
    """Interrupts a run after some rounds."""

    def __init__(self, after):
        super().__init__()
        self.after = after

    def round(self, outcome):
        if outcome.round >= self.after:
            raise KeyboardInterrupt


def assert_repeatable(description, folder):
    """Whole, interrupted and resumed, and on threads: the same bytes."""
    runs = [start(description, folder / "whole")]
    with pytest.raises(KeyboardInterrupt):
        start(description, folder / "part", stop := Stop(2))
    runs.append(resume(stop.run.path))
    runs.append(start(description.override({"engine": "threads"}), folder / "threads"))
    assert_same_bits(runs)
