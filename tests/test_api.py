"""The Python interface: what it shows while it runs, what it returns, and what type checkers say of it."""

import logging
import os
import sys
from pathlib import Path

import pytest
from mypy import api as mypy

import mnemos
from mnemos.experiment.experiment import Experiment
from support.play import SMALL

TYPED = """
import mnemos

experiment = mnemos.Experiment(data="digits", method="scaffold", local={"lr": 0.1}, measures=["forgetting"])
run = mnemos.run(experiment, {"rounds": 2}, observer=False)
table = run.table()
mnemos.Experiment(rounds="many")
mnemos.Experiment(speed=3)
"""


@pytest.fixture
def aloud(monkeypatch):
    monkeypatch.delenv("MNEMOS_QUIET")


def test_progress_is_shown_as_on_the_command_line(aloud, tmp_path, capsys):
    run = mnemos.run({**SMALL, "rounds": 1}, out=tmp_path)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"{run.path} (from round 1 of 1)"
    assert any(line.startswith("round 1/1, loss ") for line in lines)
    mnemos.resume(run.path, 2)
    assert "round 2/2" in capsys.readouterr().err
    mnemos.resume(run.path, 3, observer=False)
    assert capsys.readouterr().err == ""


def test_a_sweep_shows_its_progress(aloud, tmp_path, capsys):
    study = {"base": {**SMALL, "rounds": 1}, "variants": {"a": {}}, "seeds": [0]}
    mnemos.run(study["base"], out=tmp_path, observer=False)  # so that no process is started for it
    mnemos.sweep(study, out=tmp_path, jobs=1)
    assert capsys.readouterr().err == "1 run, 1 of them done already\n"
    mnemos.sweep(study, out=tmp_path, jobs=1, view=False)
    assert capsys.readouterr().err == ""


def test_runs_are_logged(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "mnemos"):
        run = mnemos.run({**SMALL, "rounds": 1}, out=tmp_path)
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert lines[0] == f"{run.path}: started after round 0"
    assert lines[1].startswith(f"{run.path}: round 1, loss ")
    assert lines[-1] == f"{run.path}: finished after round 1"


def test_what_is_returned_is_short_to_read(tmp_path):
    run = mnemos.run({**SMALL, "rounds": 2}, out=tmp_path)
    reached = f"finished, 2 rounds, {100 * run.accuracy:.1f} % accuracy"
    assert repr(run) == f"<Run {run.path}: {reached}>"
    assert reached in run._repr_html_()
    table = run.table()
    assert table.index.tolist() == [1, 2]
    assert table.loc[2, "test_accuracy"] == pytest.approx(run.accuracy)
    run.file("status.json").write_text("{")
    assert "it is damaged" in repr(run)
    study = {"base": {**SMALL, "rounds": 1}, "variants": {"a": {}, "b": {"local.lr": 0.2}}, "seeds": [0]}
    results = mnemos.compare(study, out=tmp_path / "study")
    assert repr(results) == "<Results: 2 runs, 2 variants, 0 failed>"
    assert results.table()[["variant", "seed", "status"]].values.tolist() == [
        ["a", 0, "finished"],
        ["b", 0, "finished"],
    ]
    assert "<td>finished</td>" in results._repr_html_()


def test_types_of_an_experiment(tmp_path, monkeypatch):
    """Names and mappings are taken for parts, without a plug-in of mypy; what is wrong is found.

    Libraries aren't looked at, which would take a minute.
    """
    (tmp_path / "snippet.py").write_text(TYPED)
    monkeypatch.setenv("MYPYPATH", str(Path(mnemos.__file__).parents[1]))
    options = ["--no-site-packages", "--ignore-missing-imports", "--follow-imports=silent", "--config-file="]
    out, _, _ = mypy.run([*options, f"--cache-dir={os.devnull}", str(tmp_path / "snippet.py")])
    found = [line.split("snippet.py:")[1] for line in out.splitlines() if ": error: " in line]
    assert len(found) == 2, out
    assert found[0].startswith('7: error: Argument "rounds" to "Experiment" has incompatible type "str"')
    assert found[1].startswith('8: error: Unexpected keyword argument "speed" for "Experiment"')


def test_the_declared_arguments_are_the_fields():
    text = Path(sys.modules[Experiment.__module__].__file__).read_text()
    declared = text.split("def __init__(")[1].split(") -> None")[0]
    names = [line.split(":")[0].strip() for line in declared.splitlines() if ": " in line and "=" in line]
    assert names == list(Experiment.model_fields)
