"""`mnemos reproduce`, from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mnemos.studies.reproduce.catalogue import find_recipe
from mnemos.studies.reproduce.names import recipe_names
from mnemos.studies.reproduce.timing import Timing

OWN = """
title: Digits with two losses
item: table 1
paper: {citation: "Nobody, 2020"}
base:
  data: digits
  model: {name: mlp, hidden: [8]}
  partition: {clients: 10}
  participation: 0.5
  rounds: 20
  engine: serial
rows: {CE: {method.loss: ce}, WSM: {method.loss: wsm}}
columns: {slow: {local.lr: 0.01}, fast: {local.lr: 0.1}}
numbers: {CE: {slow: [0.5, 0.1]}}
seeds: [0]
says: [Something.]
"""


@pytest.fixture(autouse=True)
def _no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MNEMOS_DATA", str(tmp_path / "data"))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.yaml"
    path.write_text(OWN)
    return path


def test_a_recipe_from_the_first_call_to_the_last(command, own: Path, tmp_path: Path) -> None:
    line = f"reproduce {own} --scale 0.1 --jobs 1 --out {tmp_path}/runs --quiet"
    some = command(f"{line} --only slow")
    assert "\nAt scale 0.1 (evaluate.every: 10 → 1; rounds: 20 → 2): differences are of the scale" in some.out
    assert "The paper says:\n- Something." in some.out
    rows = {
        tuple(row.split()[:2]): row.split()[2:]
        for row in some.out.splitlines()
        if row.startswith((" CE", " WSM"))
    }
    assert rows["CE", "slow"][:3] == ["0.500", "±", "0.100"]
    assert rows["CE", "slow"][-1] == "1"
    assert rows["WSM", "fast"] == ["–", "–", "–", "–"]
    runs = {path.parent for path in tmp_path.glob("runs/*/experiment.yaml")}
    assert len(runs) == 2
    times = {run: (run / "timing.jsonl").stat().st_mtime_ns for run in runs}

    every = command(f"{line} --json").json
    assert every["status"] == "finished"
    assert all(cell["seeds"] == 1 for cell in every["cells"])
    assert every["cells"][0]["difference"] == pytest.approx(every["cells"][0]["ours_mean"] - 0.5)
    # What had been run wasn't run again.
    assert {run: (run / "timing.jsonl").stat().st_mtime_ns for run in runs} == times
    assert len(list(tmp_path.glob("runs/*/experiment.yaml"))) == 4
    assert (Path(every["files"]) / "README.md").is_file()
    planned = command(f"{line} --only ce --dry-run --json").json
    assert [(row["variant"], row["state"]) for row in planned["runs"]] == [
        ("CE, slow", "finished"),
        ("CE, fast", "finished"),
    ]
    study = json.loads((tmp_path / "runs" / "own-scale-0.1.study.json").read_text())
    assert list(study["variants"]) == ["CE, slow", "CE, fast", "WSM, slow", "WSM, fast"]


def test_the_list_names_all_and_times_nothing_without_data(command, tmp_path: Path) -> None:
    listed = command(f"reproduce --list --estimate --scale 0.1 --json --quiet --out {tmp_path}").json
    rows = {row["recipe"]: row for row in listed["recipes"]}
    assert len(rows) == len(recipe_names())
    assert rows["wsm/table-5"]["runs"] == rows["wsm/table-5"]["left"] == 96
    assert rows["wsm/table-5"]["seconds"] is None
    assert rows["wsm/figure-2"]["seconds"] == rows["wsm/figure-2"]["runs"] == 0
    assert rows["wsm/a.4"]["runs"] == 3  # three columns of the same runs


def test_the_list_estimates_on_request_alone(command, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(Timing, "seconds", None)  # can't be called
    listed = command(f"reproduce --list --left --out {tmp_path}")
    assert listed.out.splitlines()[0].split() == ["recipe", "title", "runs", "left"]
    assert listed.err == ""


def test_the_list_of_titles(command, tmp_path: Path) -> None:
    listed = command(f"reproduce --list --out {tmp_path}")
    assert listed.out.splitlines()[0].split() == ["recipe", "title"]
    rows = {row["recipe"]: row["title"] for row in command("reproduce --list --json").json["recipes"]}
    assert list(rows) == recipe_names()
    assert rows["wsm/table-3"] == find_recipe("wsm/table-3")[1].title
    assert all(rows.values())


def test_the_list_of_titles_does_not_import_pytorch() -> None:
    code = (
        "import sys; from mnemos.cli.app import load; load('reproduce')(['--list'], standalone_mode=False); "
        "sys.exit('torch' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, check=False)
    assert ended.returncode == 0


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ("wsm/tabel-3", 2, "error: there is no recipe 'wsm/tabel-3'; did you mean 'wsm/table-3'?"),
        ("", 2, "error: name a recipe, or use --list"),
        ("wsm/table-3 --left", 2, "error: left: it needs --list"),
        ("wsm/table-3 --estimate", 2, "error: estimate: it needs --list"),
        ("wsm/table-3 --scale 0", 2, "error: scale: found 0; allowed: > 0 and ≤ 1"),
        ("wsm/table-3 --scale 2", 2, "error: scale: found 2; allowed: > 0 and ≤ 1"),
        ("wsm/table-3 --only FedProx", 2, "error: only: no cell matches 'FedProx'; rows: FedAvg; "),
        ("wsm/table-3 --seeds x", 2, "error: seeds: found 'x'; expected whole numbers such as 0,1,2"),
        ("wsm/table-3 --seeds 0,0", 2, "error: seeds: found 0, 0; each seed can be used once"),
        ("wsm/table-3 --seeds -1", 2, "error: seeds: found -1; allowed: ≥ 0"),
        ("wsm/table-3 --jobs 0", 2, "0 is not in the range"),
        ("nowhere.yaml", 2, "error: nowhere.yaml: there is no such file"),
        ("wsm/table-3 --only CIFAR-10", 3, "cifar10"),
    ],
)
def test_wrong_words(command, tmp_path: Path, words: str, code: int, sentence: str) -> None:
    ended = command(f"reproduce {words} --out {tmp_path / 'runs'}", code)
    assert sentence in ended.err
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_figures_that_cannot_be_written(command, own: Path, tmp_path: Path) -> None:
    ended = command(f"reproduce {own} --figures {own} --out {tmp_path / 'runs'}", 2)
    assert "figures: found" in ended.err
    assert not (tmp_path / "runs").exists()
