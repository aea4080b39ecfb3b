"""Warnings about a run: the command line and Python give the same."""

import yaml

import mnemos
from support.play import SMALL

HURTING = {"rounds": 1, "method.name": "scaffold", "local.optimizer": "adam"}


def test_python_gives_the_warnings_of_the_command_line(tmp_path, monkeypatch, capsys, command):
    monkeypatch.delenv("MNEMOS_QUIET")
    recipe = tmp_path / "small.yaml"
    recipe.write_text(yaml.safe_dump(SMALL))
    mnemos.run(recipe, HURTING, out=tmp_path / "python")
    python = _warnings(capsys.readouterr().err)
    changes = " ".join(f"{name}={value}" for name, value in HURTING.items())
    shell = _warnings(command(f"run {recipe} {changes} --out {tmp_path / 'shell'}").err)
    assert python == shell
    assert len(python) == 1
    assert python[0].startswith("warning: SCAFFOLD's option II takes")


def _warnings(text):
    return [line for line in text.splitlines() if line.startswith("warning: ")]
