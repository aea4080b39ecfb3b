"""Someone who interrupts a run, and what must come of it all the same."""

import pytest

from mnemos.runs.execute import Silent, resume, start


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
    for name in ("model.safetensors", "metrics.jsonl"):
        assert len({run.file(name).read_bytes() for run in runs}) == 1
