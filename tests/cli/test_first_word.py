"""The word before PyTorch is imported."""

import subprocess
import sys
import time

import pytest

from mnemos.cli.commands.runs import runs
from mnemos.cli.first_word import first_word
from mnemos.cli.output import run_facts
from mnemos.runs.directory import RunDirectory


@pytest.fixture
def no_torch(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")


def on_terminal(monkeypatch, stream):
    monkeypatch.setattr(stream, "isatty", lambda: True)


@pytest.mark.usefixtures("no_torch")
def test_a_line_where_there_is_no_terminal(capsys):
    with first_word("run", ["--rounds", "3"]):
        assert capsys.readouterr().err == "mnemos run: loading PyTorch\n"
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("no_torch")
def test_a_terminal_is_cleared(capsys, monkeypatch):
    on_terminal(monkeypatch, sys.stderr)
    with first_word("report", []):
        assert capsys.readouterr().err == "mnemos report: loading PyTorch"
    assert capsys.readouterr().err == "\r\x1b[2K"


@pytest.mark.usefixtures("no_torch")
@pytest.mark.parametrize(("name", "words"), [("run", ["--quiet"]), ("report", []), ("sweep", ["--help"])])
def test_silence(capsys, name, words):
    with first_word(name, words):
        pass
    assert capsys.readouterr().err == ""


def test_nothing_to_load(capsys):
    with first_word("run", []):
        pass
    assert capsys.readouterr().err == ""


def test_a_list_of_runs_does_not_import_pytorch():
    code = "import sys; import mnemos.cli.commands.runs; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_list_of_300_runs(tmp_path, capsys):
    """Less than a second of processor time, private runs among them: it was about 0.3 s."""
    for number in range(300):
        run = RunDirectory(tmp_path / f"run-{number:03}")
        run.path.mkdir()
        run.file("experiment.yaml").touch()
        run.file("status.json").write_text('{"status": "finished", "rounds": 50, "accuracy": 0.9}')
    run.file("privacy.json").write_text("{}")
    run.file("metrics.jsonl").write_text('{"round": 1, "name": "epsilon", "value": 2.5}\n')
    before = time.process_time()
    runs(tmp_path)
    assert time.process_time() - before < 1
    assert len(capsys.readouterr().out.splitlines()) == 301
    assert run_facts(run)["privacy"] == {"epsilon": 2.5}
