"""The queue of the claims' runs: in order, each once, and on from where it was ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import claim_queue
import claim_runs
from mnemos.runs.run import Run
from verdicts import Decided, read_claims


@pytest.fixture(autouse=True)
def _cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue takes one core; the tests after it have theirs again."""
    monkeypatch.setenv(claim_queue.VARIABLE, "1")


@pytest.fixture
def recipe(tmp_path: Path, tiny: dict[str, Any]) -> str:
    """Two losses that take a moment each."""
    path = tmp_path / "losses.yaml"
    fields = {
        "title": "T",
        "item": "I",
        "paper": {"citation": "C"},
        "base": {},
        "small": tiny,
        "rows": {"ce": {"method.loss": "ce"}, "wsm": {"method.loss": "wsm"}},
        "columns": {"digits": {}},
    }
    path.write_text(yaml.safe_dump(fields))
    return str(path)


class Queue:
    """The queue with an order of its own; what it says is kept."""

    def __init__(self, folder: Path, *steps: dict[str, Any]) -> None:
        folder.mkdir(exist_ok=True)
        self.runs, self.lines, self._order = folder / "runs", folder / "lines.jsonl", folder / "order.yaml"
        self._order.write_text(yaml.safe_dump([*steps]))
        self.said: list[str] = []

    def work(self, **options: Any) -> int:
        return claim_queue.work(
            self.runs, **options, say=self.said.append, order=self._order, lines=self.lines
        )

    @property
    def begun(self) -> list[str]:
        """What was run, in order."""
        return [
            said[18:].partition(" (")[0].rpartition("/losses.yaml: ")[2]
            for said in self.said
            if " left)" in said
        ]

    @property
    def record(self) -> list[dict[str, Any]]:
        return [json.loads(text) for text in (self.runs / claim_queue.RECORD).read_text().splitlines()]

    @property
    def ended(self) -> list[Run]:
        runs = [Run(path.parent) for path in sorted(self.runs.glob("*/experiment.yaml"))]
        return [run for run in runs if run.ended]


def test_runs_go_seed_by_seed_and_are_recorded(tmp_path: Path, recipe: str) -> None:
    queue = Queue(tmp_path, {"recipe": recipe, "seeds": [1, 0]})
    assert queue.work() == 4
    assert queue.begun == [f"{loss}/digits, seed {seed}" for seed in (1, 0) for loss in ("ce", "wsm")]
    assert {one["hash"] for one in queue.record} == {run.experiment.hash() for run in queue.ended}
    assert all(one["status"] == "finished" and one["rounds"] == 4 for one in queue.record)
    assert all(one["commit"] == claim_runs.commit() and one["cpu_seconds"] > 0 for one in queue.record)


def test_what_is_finished_or_collected_is_not_run_again(tmp_path: Path, recipe: str) -> None:
    """A line of results is known by cell and seed: its hash may be of an older version."""
    queue = Queue(
        tmp_path, {"recipe": recipe, "only": ["ce"], "seeds": [0]}, {"recipe": recipe, "seeds": [0]}
    )
    known = {"cells": [f"{recipe}: wsm/digits"], "hash": "older", "seed": 0}
    queue.lines.write_text(json.dumps(known) + "\n")
    assert queue.work() == 1
    assert queue.begun == ["ce/digits, seed 0"]
    assert queue.work() == 0


def test_what_waits_is_said_and_not_run(tmp_path: Path, recipe: str) -> None:
    queue = Queue(tmp_path, {"recipe": recipe, "seeds": [0], "waits": "for rates"})
    assert queue.work() == 0
    assert queue.said == [f"waits: {recipe} (for rates)"]


def test_one_recipe_alone(tmp_path: Path, recipe: str) -> None:
    queue = Queue(tmp_path, {"recipe": "claims/norms", "seeds": [0]}, {"recipe": recipe, "seeds": [0]})
    assert queue.work(only=recipe) == 2


def test_an_interrupted_run_goes_on(tmp_path: Path, recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended after the second of four rounds; the result is that of a run in one go, and both parts count."""
    queue = Queue(tmp_path, {"recipe": recipe, "only": ["ce"], "seeds": [0]})
    with monkeypatch.context() as patched:
        rounds = iter([False, True])
        patched.setattr(claim_queue._Meter, "is_late", lambda self: next(rounds))
        assert queue.work() == 0
    assert queue.said[-1].startswith("interrupted")
    assert queue.work() == 1
    (run,) = queue.ended
    assert [(one["status"], one["rounds"]) for one in queue.record] == [("interrupted", 2), ("finished", 4)]
    other = Queue(tmp_path / "other", {"recipe": recipe, "only": ["ce"], "seeds": [0]})
    other.work()
    (whole,) = other.ended
    assert run.file("metrics.jsonl").read_bytes() == whole.file("metrics.jsonl").read_bytes()


def test_when_the_time_is_up_nothing_is_begun(tmp_path: Path, recipe: str) -> None:
    queue = Queue(tmp_path, {"recipe": recipe, "seeds": [0]})
    assert queue.work(hours=0) == 0
    assert queue.begun == []


def test_a_run_that_fails_does_not_hold_up_the_others(tmp_path: Path, recipe: str) -> None:
    text = Path(recipe).read_text()
    Path(recipe).write_text(text.replace("method.loss: ce", "data: cifar10"))  # which isn't there
    queue = Queue(tmp_path, {"recipe": recipe, "seeds": [0]})
    assert queue.work() == 1
    assert queue.begun == ["ce/digits, seed 0", "wsm/digits, seed 0"]
    assert any(said.startswith("  failed: ") for said in queue.said)


def test_the_order_names_cells_that_exist_and_has_what_the_claims_ask_for() -> None:
    """Each run of a comparison is in it, whether it waits or not."""
    steps = claim_queue.read_order()
    cases = [case for step in steps for case in step.cases()]
    lines = [
        {"cells": [case.variant], "hash": case.variant, "seed": case.experiment.seed, "figures": {}}
        for case in cases
    ]
    for claim in read_claims():
        for part in claim.parts:
            decided = Decided(part, lines)
            runs = {(line["hash"], line["seed"]) for line in decided.runs}
            wanted = len(part.contrast) or len(decided.rated)
            assert len(runs) == wanted * len(part.seeds), part.says
