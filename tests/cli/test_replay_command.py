"""`mnemos replay`: a branch from the command line, its report, and wrong words."""

from __future__ import annotations

from pathlib import Path

import pytest

from mnemos.report.groups import group
from mnemos.report.reading import read
from mnemos.runs import execute
from mnemos.runs.run import Run, runs_in
from support.play import small

DONE = small(rounds=4, evaluate={"every": 1})


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return execute.start(DONE, Path("runs"))


def test_a_branch_that_the_report_draws_beside_its_parent(command, run):
    line = f"replay {run.path} --from 2 --without 3 --reweight 1=0.5 --rounds 1 --change method.loss=wsm -q"
    facts = command(f"{line} --json").json
    branch = Run(Path(facts["run"]))
    assert (facts["status"], facts["rounds"], branch.path.parent) == ("finished", 3, Path("runs"))
    assert branch.parent["run"] == str(run.path.resolve())
    assert branch.parent["changes"] == {"method.loss": "wsm"}
    groups = group([read(found) for found in runs_in(Path("runs"))], pytest.fail)
    assert len(groups) == 2
    assert any("branch=round 2 without 3" in found.label for found in groups)


def test_a_rule(command, run):
    facts = command(f"replay {run.path} --from 3 --rule median --out other -q --json").json
    assert type(Run(Path(facts["run"])).experiment.method.rule).name == "median"
    assert Path(facts["run"]).parent == Path("other")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--from 9", "found round 9; the run has rounds 0 to 4"),
        ("--from 1 --without 8", "faults.0.who: found client 8; the clients are 0 to 7"),
        ("--from 1 --reweight 12", "reweight: found '12'; expected a client and a factor, such as 12=0.1"),
        ("--from 1 --rule meen", "method.rule: there is no rule 'meen'; did you mean 'mean'"),
        ("--from 1 --change seed=1", "seed: a branch keeps its parent's"),
    ],
)
def test_wrong_words(command, run, words, sentence):
    assert sentence in command(f"replay {run.path} {words}", 2).err


def test_a_long_replay_asks_for_yes(command, run):
    """Rounds of an hour: two of them take two hours, so it wants to be told."""
    lines = "".join(f'{{"round": {round}, "seconds": 3600}}\n' for round in range(1, 5))
    run.file("timing.jsonl").write_text(lines)
    sentence = command(f"replay {run.path} --from 2", 2).err
    assert "replaying rounds 1 to 2, from the start, as no checkpoint was kept, takes" in sentence
    assert "about 2 h 0 min; --yes does it" in sentence
    assert command(f"replay {run.path} --from 2 -q --yes --json").json["status"] == "finished"
