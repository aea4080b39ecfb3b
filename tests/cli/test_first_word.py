"""The word before PyTorch is imported."""

import subprocess
import sys

import pytest

from mnemos.cli.first_word import first_word


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
