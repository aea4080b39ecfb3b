"""What a person sees of a run."""

import io
import re

import pytest
from rich.console import Console

from mnemos.data.load import forget
from mnemos.display import terminal, watch
from mnemos.display.watch import RunBar, RunLines
from mnemos.runs.execute import start
from support.play import small


@pytest.fixture
def screen(monkeypatch):
    """What a terminal of 80 columns shows, line by line, without colours and movements."""
    shown = io.StringIO()
    monkeypatch.setattr(terminal, "errors", Console(force_terminal=True, width=80, file=shown))
    return lambda: re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue()))


def test_a_bar_from_the_first_stage_to_the_last_round(screen, tmp_path):
    """What a refresh would show is read off the bar, as refreshes come by the clock."""
    bar, seen = RunBar("a run with a name that is longer than a terminal is wide"), []
    told = bar.doing

    def doing(what, share):
        told(what, share)
        bar._progress.refresh()
        seen.append(what)

    bar.doing = doing
    forget()  # another test may have read them
    start(small(rounds=2, engine={"name": "serial"}), tmp_path, bar)
    assert seen[:2] == ["reading digits", "dividing the samples among clients"]
    assert "evaluating" in seen
    lines = screen()
    bars = [line for line in lines if "/2" in line]
    assert any("client 1 of " in line for line in bars)
    assert all(len(line) < 80 for line in bars)
    assert any(line.startswith("a run with") and "reading digits" in line for line in lines)
    assert re.search(r"━  2/2  loss \d", bars[-1])


def test_a_bar_shows_the_loss_of_this_round(screen, tmp_path):
    bar, losses = RunBar(), []
    told = bar.round

    def round(outcome):
        told(outcome)
        losses.append((f"loss {outcome.loss:.4g}", bar._progress.tasks[-1].fields["notes"]))

    bar.round = round
    start(small(rounds=3, engine={"name": "serial"}), tmp_path, bar)
    assert all(loss == notes[0] for loss, notes in losses)
    assert len({loss for loss, _ in losses}) == 3


def test_lines_say_what_is_done_if_it_takes_long(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(watch, "_PATIENCE", -1)
    start(small(rounds=2, engine={"name": "serial"}), tmp_path, RunLines("here"))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "here: reading digits" or lines[0].startswith("here: dividing")
    assert any(line.startswith("here: round 2/2, client 1 of ") for line in lines)
    assert lines[-1].startswith("here: round 2/2, loss ")


def test_lines_are_few_otherwise(capsys, tmp_path):
    start(small(rounds=2, engine={"name": "serial"}), tmp_path, RunLines())
    lines = capsys.readouterr().err.splitlines()
    assert not any("client 1 of" in line for line in lines)
