"""A sweep that is interrupted, killed and called again: no run twice, none lost, none different."""

import json
import signal
import time

import pytest

import mnemos
from mnemos.runs.run import Run, runs_in
from support.processes import Command

STUDY = """
base:
  partition: {clients: 12, alpha: 0.5}
  model: {hidden: [8]}
  participation: 0.34
  local: {batch: 16}
  rounds: 60
  evaluate: {every: 7, test_last: 5}
  engine: serial
grid:
  local.lr: [0.05, 0.1, 1e36]
seeds: [0, 1]
"""
RUNS, ROUNDS = 6, 60


@pytest.fixture
def place(tmp_path):
    (tmp_path / "rates.yaml").write_text(STUDY)
    return tmp_path


def sweeping(place, *words):
    """`mnemos sweep` in a process of its own."""
    return Command("sweep", "rates.yaml", "--out", "runs", "--json", *words, cwd=place)


def wait_until(condition, seconds=90):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.1)


def rounds_of(run):
    path = run.file("timing.jsonl")
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["round"] for line in lines]


def rounds_done(place):
    return sum(len(rounds_of(run)) for run in runs_in(place / "runs"))


def ended(place):
    return {
        run.path: run.file("status.json").stat().st_mtime_ns for run in runs_in(place / "runs") if run.ended
    }


def test_killed_called_again_and_interrupted(place):
    whole = mnemos.compare(place / "rates.yaml", out=place / "whole")

    with sweeping(place, "--jobs", "2") as process:
        wait_until(lambda: rounds_done(place) >= 70)  # so that at least one run has ended
        process.send(signal.SIGKILL)
    wait_until(lambda: not any(run.locked for run in runs_in(place / "runs")), 20)  # workers notice it
    left_alone = ended(place)
    assert len(left_alone) < RUNS, "it was killed in the middle"

    # Called again, by two at once; one of them is interrupted, and the other does what that one leaves.
    with sweeping(place, "--jobs", "1") as one, sweeping(place, "--jobs", "1") as two:
        assert "at once" in one.line(0, "err")
        assert "seed" in one.line(1, "err")  # it has begun with a run, or waits for one of the other's
        one.send(signal.SIGINT)
        interrupted = one.ended()
        assert interrupted.code == 130
        assert json.loads(interrupted.out)["status"] == "interrupted"
        finished = two.ended()
        assert finished.code == 0
        assert json.loads(finished.out)["status"] == "finished"
    assert left_alone.items() <= ended(place).items()

    runs = runs_in(place / "runs")
    assert len(runs) == len(runs_in(place / "whole")) == RUNS
    for run in runs:
        theirs = Run.at(place / "whole" / run.path.name)
        assert run.file("metrics.jsonl").read_bytes() == theirs.file("metrics.jsonl").read_bytes()
        assert run.status == theirs.status
        assert rounds_of(run) == sorted(set(rounds_of(run))), "no round is done twice"
        if run.status.status == "finished":
            assert len(rounds_of(run)) >= ROUNDS - 2  # a kill can fall between a round and its time
    assert [len(whole.accuracies(name)) for name in whole.runs] == [2, 2, 0]
    record = json.loads((place / "runs/rates.study.json").read_text())
    assert {name: sorted(found) for name, found in record["variants"].items()} == {
        name: sorted(run.path.name for run in found) for name, found in whole.runs.items()
    }
