"""`--device`: the short form of `engine.device`, on pretend devices where a run is made on one."""

from __future__ import annotations

import json
import shlex

import pytest

from mnemos.runs.run import Run
from mnemos.studies.reproduce.catalogue import find_recipe
from mnemos.studies.reproduce.reproduction import Reproduction
from support.processes import Command

TINY = shlex.split(
    "partition.clients=4 partition.name=iid model.hidden=[4] participation=1 rounds=2 local.steps=1 "
    "evaluate.every=1 engine=serial"
)
STUDY = """
base:
  partition: {name: iid, clients: 4}
  model: {hidden: [4]}
  participation: 1
  rounds: 1
  local: {steps: 1}
  engine: serial
variants:
  slow: {local.lr: 1e-3}
  fast: {local.lr: 0.5}
seeds: [0]
"""


def on_pretend(*words, cwd, code=0):
    """How a command ends that has pretend devices."""
    with Command(*words, cwd=cwd, pretend=True) as command:
        ended = command.ended()
    assert ended.code == code, ended
    return ended


@pytest.mark.parametrize(
    ("given", "settled"),
    [
        ("pretend", "pretend:0"),
        ("pretend:1", "pretend:1"),
        ("pretend:0,pretend:1", ["pretend:0", "pretend:1"]),
        ("pretend:1, pretend:0", ["pretend:1", "pretend:0"]),
        ("cpu", "cpu"),
    ],
)
def test_run_is_made_on_the_devices_that_are_named(tmp_path, given, settled):
    ended = on_pretend("run", *TINY, "--device", given, "--json", cwd=tmp_path)
    run = Run.at(tmp_path / json.loads(ended.out)["run"])
    names = [name.strip() for name in given.split(",")]
    assert run.experiment.engine.dump()["device"] == (names[0] if len(names) == 1 else names)
    assert run.engine.dump()["device"] == settled


def test_a_field_beats_the_option_and_the_option_the_recipe(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.yaml").write_text("engine: {name: serial, device: cuda:7}")
    shown = command("run recipe.yaml --device cpu --show").out
    assert "device: cpu" in shown
    assert "device: 'cuda:3'" in command("run recipe.yaml --device cpu engine.device=cuda:3 --show").out
    assert "device: [cpu, xpu]" in command("run recipe.yaml --device cpu,xpu --show").out


@pytest.mark.parametrize("name", ["compare", "sweep"])
def test_studies_are_made_on_the_device(command, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(STUDY)
    found = command(f"{name} study.yaml --device cpu --quiet --json").json
    for variant in found["variants"]:
        for run in variant["runs"]:
            assert Run.at(run["run"]).experiment.engine.dump()["device"] == "cpu"


def test_a_comparison_runs_on_a_device_of_its_own(tmp_path):
    (tmp_path / "study.yaml").write_text(STUDY)
    ended = on_pretend("compare", "study.yaml", "--device", "pretend:1", "--json", cwd=tmp_path)
    for variant in json.loads(ended.out)["variants"]:
        for run in variant["runs"]:
            assert Run.at(tmp_path / run["run"]).engine.dump()["device"] == "pretend:1"


def test_a_device_that_is_not_there_is_answered_with_those_that_are(tmp_path):
    ended = on_pretend("run", *TINY, "--device", "pretend:2", cwd=tmp_path, code=2)
    assert ended.err == (
        "error: engine.device: there is no device 'pretend:2'; there is cpu, pretend:0, pretend:1\n"
    )
    assert not (tmp_path / "runs").exists()


def test_a_reproduction_on_a_device_takes_an_engine_that_has_one(tmp_path):
    """The recipe's engine is `threads`, which a command of this kind can't change otherwise."""
    known, recipe = find_recipe("wsm/table-3")
    usual = Reproduction(known, recipe, tmp_path, 0.01)
    there = Reproduction(known, recipe, tmp_path, 0.01, device="cuda")
    both = Reproduction(known, recipe, tmp_path, 0.01, device=["cuda:0", "cuda:1"])
    assert {type(cell.experiment.engine).name for cell in usual.cells} == {"threads"}
    assert {cell.experiment.engine.dump()["name"] for cell in there.cells} == {"auto"}
    assert {cell.experiment.engine.dump()["device"] for cell in there.cells} == {"cuda"}
    assert both.cells[0].experiment.engine.dump()["device"] == ["cuda:0", "cuda:1"]
    assert there.settings == usual.settings  # they name what the scale has changed
    assert there.command == "mnemos reproduce wsm/table-3 --scale 0.01 --device cuda"
    assert both.command.endswith("--device cuda:0,cuda:1")
    assert Reproduction(known, recipe, tmp_path, 0.01, device="cpu").cells == usual.cells
