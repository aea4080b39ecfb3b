"""`mnemos sweep`: what it says, how it ends, and what it would do."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from mnemos.cli import plan
from mnemos.cli.commands import sweep
from mnemos.display import study as module
from mnemos.display.study import StudyLines, StudyScreen, overview
from mnemos.experiment.experiment import Experiment
from mnemos.runs.execute import start
from mnemos.runs.run import Run
from mnemos.studies.pool import StudyView
from mnemos.studies.results import Result, Results
from mnemos.studies.study import Case, Study
from support.interrupt import Stop

STUDY = """
base:
  partition: {clients: 12, alpha: 0.5}
  model: {hidden: [8]}
  participation: 0.34
  rounds: 3
  evaluate: {every: 1}
  engine: serial
grid:
  method.loss: [ce, "unlucky_cli:Raises"]
  local.lr: [0.1, 1e36]
seeds: [0]
"""

UNLUCKY = """
from mnemos.objectives.ce import CrossEntropy

class Raises(CrossEntropy):
    def __call__(self, logits, labels, counts):
        raise RuntimeError("out of luck")
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("MNEMOS_CORES", "2")
    Path("rates.yaml").write_text(STUDY)
    Path("unlucky_cli.py").write_text(UNLUCKY)
    return tmp_path


def test_a_table_what_failed_and_why_and_an_exit_code(command):
    ended = command("sweep rates.yaml --jobs 1", 1)
    assert re.search(r"loss=ce, lr=0\.1 +\d+\.\d % +\d+\.\d % +\d+\.\d % +1", ended.out)
    assert re.search(r"loss=ce, lr=1e\+36 +NC +– +– +1", ended.out)
    assert re.search(r"loss=unlucky_cli:Raises, lr=0\.1 +1 failed +– +– +1", ended.out)
    assert "files: runs" in ended.out
    lines = ended.err.splitlines()
    assert lines[0] == "4 runs, 1 at once"
    assert re.search(r"loss=ce, lr=1e\+36, seed 0: NC; \d of 4 done, 1 NC", ended.err)
    failed = [line for line in lines if line.startswith("failed: ")]
    assert len(failed) == 2
    assert all("RuntimeError: out of luck" in line and "mnemos resume runs/" in line for line in failed)
    record = json.loads(Path("runs/rates.study.json").read_text())
    assert [len(runs) for runs in record["variants"].values()] == [1, 1, 1, 1]

    Path("rates.yaml").write_text(STUDY.replace(', "unlucky_cli:Raises"', ""))
    again = command("sweep rates.yaml --json")  # nothing is left to do
    assert again.err.splitlines() == ["2 runs, 2 of them done already"]
    assert again.json["status"] == "finished"
    assert again.json["failed"] == []
    assert [row["diverged"] for row in again.json["variants"]] == [0, 1]


def test_an_interruption_says_how_to_go_on(command, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "carry_out", interrupt)
    ended = command("sweep rates.yaml --json", 130)
    assert "the same command continues" in ended.err
    assert (ended.json["status"], ended.json["exit_code"]) == ("interrupted", 130)


# --- what it would do ---------------------------------------------------------------------------------


class Known:
    """A round takes two seconds."""

    def __init__(self, folder, *, cores):
        assert (folder, cores) == (Path("runs"), 1)

    def seconds(self, experiment: Experiment) -> float | None:
        return None if experiment.rounds > 90 else 2.0 * experiment.rounds


@pytest.fixture
def known(monkeypatch):
    monkeypatch.setattr(plan, "Estimates", Known)


def test_a_dry_run_says_what_would_run_and_runs_nothing(command, known):
    """A finished run, one with a round left, two new ones of 6 s: two at once take 2 + 6 s, and 6 s."""
    Path("rates.yaml").write_text(STUDY.replace('[ce, "unlucky_cli:Raises"]', "[ce, wsm]"))
    first, second, *_ = (case.experiment for case in Study.read("rates.yaml", {"local.lr": 1}).cases())
    second = second.override({"local.lr": 1e36})
    start(first.override({"local.lr": 0.1}), Path("runs"))
    with pytest.raises(KeyboardInterrupt):
        start(second.override({"local.lr": 0.2}), Path("runs"), Stop(2))
    text = Path("rates.yaml").read_text().replace("1e36", "0.2")
    Path("rates.yaml").write_text(text)
    before = sorted(Path("runs").rglob("*"))
    ended = command("sweep rates.yaml --trust --dry-run")
    rows = [re.split(r" {2,}", line.strip()) for line in ended.out.splitlines()]
    assert rows == [
        ["variant", "seed", "state", "time"],
        ["loss=ce, lr=0.1", "0", "finished", "–"],
        ["loss=ce, lr=0.2", "0", "resumes at round 3", "2 s"],
        ["loss=wsm, lr=0.1", "0", "new", "6 s"],
        ["loss=wsm, lr=0.2", "0", "new", "6 s"],
        ["3 of 4 runs to do, 2 at once: about 8 s"],
    ]
    assert sorted(Path("runs").rglob("*")) == before
    plan = command("sweep rates.yaml --trust --dry-run --json").json
    assert (plan["status"], plan["jobs"], plan["seconds"]) == ("planned", 2, 8.0)
    assert [row["seconds"] for row in plan["runs"]] == [0.0, 2.0, 6.0, 6.0]


def test_a_dry_run_of_unknown_length(command, known):
    ended = command("sweep rates.yaml rounds=91 method.loss=ce --trust --dry-run --seeds 0,1")
    assert "8 of 8 runs to do, 2 at once: of unknown length" in ended.out
    assert not Path("runs").exists()


def test_a_dry_run_says_what_a_privacy_budget_allows(command, known):
    private = "'privacy={name: gaussian, noise: 2, budget: 2.4}' method.weighting=uniform selection=poisson"
    ended = command(f"sweep rates.yaml rounds=60 method.loss=ce {private} --trust --dry-run")
    assert re.search(r"new, for \d of 60 rounds", ended.out)


def test_the_sweep_that_comes_with_mnemos(command, known):
    recipe = Path(__file__).parents[2] / "recipes/sweep.yaml"
    assert "12 of 12 runs to do" in command(f"sweep {recipe} --dry-run").out


# --- one view of many runs ----------------------------------------------------------------------------


@pytest.fixture
def cases():
    base = Experiment.parse({"rounds": 10})
    return [Case(name, base.override({"seed": seed})) for seed, name in enumerate(("a", "b [x]", "c"))]


def play(view: StudyView, cases, monkeypatch) -> None:
    """One run is done, one gets to round 5 of 10, one diverges in its first round."""
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    run = Run(Path("runs/x"))
    view.opened(Results([Result(cases[0], None, "finished")]), cases[1:], 2)
    view.started(cases[1], run, 0)
    view.started(cases[2], run, 0)
    for number in range(1, 6):
        view.round(cases[1], number, 0.5 if number == 5 else None)
    view.warned(cases[1], "it hurts")
    view.warned(cases[2], "it hurts")
    view.ended(Result(cases[2], run, "failed", "out of luck"))


def test_lines_say_what_is_left(cases, monkeypatch, capsys):
    """5 rounds took 10 s and 5 are left; 10 more of the other run were given up."""
    view = StudyLines()
    play(view, cases, monkeypatch)
    assert capsys.readouterr().err.splitlines() == [
        "3 runs, 1 of them done already, 2 at once",
        "b [x], seed 1: runs/x (from round 1 of 10)",
        "c, seed 2: runs/x (from round 1 of 10)",
        "b [x], seed 1: warning: it hurts",
        "c, seed 2: failed (out of luck); 1 of 3 done, 1 failed, 10 s left",
    ]


def test_the_screen_shows_what_is_running(cases, monkeypatch):
    text = io.StringIO()
    monkeypatch.setattr(module, "errors", Console(file=text, force_terminal=True, width=100))
    view = StudyScreen()
    play(view, cases, monkeypatch)
    with Console(file=text, width=100, record=True) as console:
        console.print(view._draw())
    drawn = console.export_text()
    assert "1 of 3 done, 1 failed, " in drawn
    assert re.search(r"b \[x\], seed 1 +round 5/10 +50\.0 %", drawn)
    assert "c, seed 2" not in drawn
    view.closed()
    assert "failed (out of luck)" in text.getvalue()


def test_quiet_is_quiet():
    assert type(overview(quiet=True)) is StudyView
