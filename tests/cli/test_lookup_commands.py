"""`mnemos list` and `mnemos show`."""

import re

import pytest

from mnemos.lookup.kinds import KINDS

PLUGGED = """
from pydantic import Field

from mnemos.objectives.ce import CrossEntropy


class Focal(CrossEntropy):
    'Focal loss.'

    gamma: float = Field(2.0, ge=0, description="how much less easy samples count")
"""


def test_kinds(command):
    out = command("list").out
    assert all(kind in out for kind in KINDS)
    assert max(map(len, out.splitlines())) <= 80


def test_parts_of_a_kind(command):
    out = command("list losses").out
    assert re.search(r"^  wsm +Cross-entropy whose softmax", out, re.MULTILINE)
    assert command("show losses").out == out


def test_all_parts_as_json(command):
    facts = command("list --json").json["parts"]
    assert {part["kind"] for part in facts} == set(KINDS)
    (adam,) = (part for part in facts if part["kind"] == "server-steps" and part["name"] == "adam")
    assert {"lr", "beta1", "beta2", "tau"} <= {option["name"] for option in adam["options"]}


def test_a_part(command):
    out = command("show wsm").out
    for piece in (
        "β_c exp f_c",
        "one of train, all, tasks; default train",
        "mnemos run --loss wsm",
    ):
        assert piece in out
    assert max(map(len, out.splitlines())) <= 80
    assert command("show wsm --json").json["example"] == "mnemos run --loss wsm"


def test_fields(command):
    assert "default 0.0" in command("show method.server.momentum").out
    assert command("show method.server.momentum --json").json["of"][0]["part"] == "server-steps/sgd"
    assert "krum" in command("show method.rule").out  # with all that can be chosen
    assert "participation: number > 0 and ≤ 1; default 0.1" in command("show").out
    assert command("show --json").json["of"][0]["name"] == "data"


@pytest.mark.parametrize("line", ["show scafold", "list modles", "show method.servr"])
def test_unknown_names(command, line):
    ended = command(line, code=2)
    assert "did you mean" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_plug_in(command, plugged):
    out = command("list losses").out
    assert "focal" in out
    assert "[plugged-parts 1.2]" in out
    shown = command("show focal").out
    assert "gamma: number ≥ 0; default 2.0" in shown
    assert "from:     plugged-parts 1.2" in shown


@pytest.fixture
def plugged(tmp_path, monkeypatch):
    """A package that offers a loss, installed in a folder of its own."""
    (tmp_path / "plugged_looked_up.py").write_text(PLUGGED)
    about = tmp_path / "plugged_parts-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged-parts\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text("[mnemos.losses]\nfocal = plugged_looked_up:Focal\n")
    monkeypatch.syspath_prepend(str(tmp_path))
