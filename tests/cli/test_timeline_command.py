"""`mnemos timeline`: draws and summarises tasks before anything is trained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_it_draws_and_summarises(command):
    ended = command("timeline stream=tasks stream.tasks=5 rounds=30 partition.name=power-law")
    title, *rows, last = ended.out.splitlines()
    assert title.strip() == "digits, tasks"
    summary = dict(re.split(r" {2,}", row.strip()) for row in rows)
    assert (summary["clients"], summary["rounds"], summary["tasks"]) == ("100", "30", "5")
    assert last == "figure: timeline.png"
    assert Path("timeline.png").read_bytes().startswith(b"\x89PNG")


def test_with_json(command):
    Path("recipe.yaml").write_text("stream: {name: aligned, tasks: 2}\nrounds: 6\n")
    facts = command("timeline recipe.yaml stream.tasks=5 -o figures/when.pdf --show 3 --json").json
    assert facts["status"] == "finished"
    assert facts["stream"]["name"] == "aligned"
    assert (facts["rounds"], facts["tasks"], facts["at_once"]) == (6, 5, 1)
    assert facts["figure"] == "figures/when.pdf"
    assert Path("figures/when.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("timeline", "error: stream: found static, which has no tasks; stream=tasks or stream=aligned has"),
        ("timeline stream=tasks rounds=9", "error: stream.tasks: found 10; there are 9 rounds"),
        ("timeline stream=tasks -o a.gif", "error: figure: found 'a.gif'"),
        ("timeline nowhere.yaml", "error: nowhere.yaml"),
    ],
)
def test_wrong_words(command, line, sentence):
    assert command(line, 2).err.startswith(sentence)
    assert not list(Path().glob("*.png"))
