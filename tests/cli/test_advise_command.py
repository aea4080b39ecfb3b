"""`mnemos advise` and `mnemos tune` on the command line and in Python."""

import json
import sys
from pathlib import Path

import pytest
import yaml

import mnemos
from mnemos.errors import ConfigError

BASE = {
    "data": "digits",
    "partition": {"clients": 8},
    "model": {"name": "logistic"},
    "local": {"steps": 2},
    "participation": 0.5,
    "rounds": 3,
    "engine": "serial",
}
STUDY = {"base": BASE, "grid": {"local.lr": [1e-6, 0.5]}, "seeds": [1, 2]}


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("experiment.yaml").write_text(yaml.safe_dump(BASE))
    Path("study.yaml").write_text(yaml.safe_dump(STUDY))


def test_describe_in_words_as_json_and_in_python(command):
    words = command("advise experiment.yaml --describe").out
    assert "8 clients hold" in words
    assert "effective classes" in words
    said = json.loads(command("advise experiment.yaml --describe --json partition.clients=4").out)
    found = mnemos.describe_federation("experiment.yaml", {"partition.clients": 4})
    assert (said["status"], said["clients"], said["overlap"]) == ("finished", 4, found.overlap)
    assert not Path("runs").exists()
    assert command("advise experiment.yaml --describe --figure a/b.png").out.endswith("figure: a/b.png\n")
    assert Path("a/b.png").stat().st_size > 5_000
    study = json.loads(command("advise study.yaml --describe --json").out)
    assert study["clients"] == 8


def test_tune_writes_its_advice_and_repeats_it(command):
    said = command("tune study.yaml --budget 10m --out out").out
    assert "Take lr=0.5" in said
    assert "mnemos run out/winner.yaml" in said
    winner = mnemos.Experiment.parse(yaml.safe_load(Path("out/winner.yaml").read_text()))
    assert winner.same_as(mnemos.Experiment.parse(BASE).override({"local.lr": 0.5}))
    assert yaml.safe_load(Path("out/runner-up.yaml").read_text())["local"]["lr"] == 1e-6
    before = {path: path.stat().st_mtime_ns for path in Path("out").rglob("metrics.jsonl")}
    again = json.loads(command("tune study.yaml --budget 10m --out out --quiet --json").out)
    assert again["winner"] == "lr=0.5"
    assert again["seconds"] > 0
    assert {path: path.stat().st_mtime_ns for path in Path("out").rglob("metrics.jsonl")} == before
    advice = mnemos.tune("study.yaml", budget="10m", out="out", view=False)
    assert advice.winner.name == "lr=0.5"
    assert list(advice.table()["name"]) == ["lr=0.5", "lr=1e-06"]
    page = mnemos.write_report("out", "a.html").page.read_text()
    assert "What to take" in page


def test_advise_tries_the_experiments_own_choice(command):
    said = json.loads(command("advise experiment.yaml --budget 1ms --json --quiet", 2).out)
    assert "budget" in said["error"]
    said = json.loads(command("advise experiment.yaml --budget 0.001s --json --quiet --out few").out)
    assert said["winner"] is None
    assert "can't be told" in said["sentences"][0]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("advise experiment.yaml --budget soon", "budget: found 'soon'; expected a time such as 90s, 20m"),
        ("tune study.yaml --budget 5", "budget: found '5'; expected a time"),
        ("advise experiment.yaml partition.validation=0", "partition.validation: found 0; pilots are judged"),
        ("tune wrong.yaml", "local.lrr: unknown field"),
        ("tune one.yaml", "found one variant; a search needs two or more"),
        ("advise experiment.yaml locl.lr=1", "locl"),
        ("advise experiment.yaml --figure a.png", "--figure: is of what --describe says"),
        (
            "advise experiment.yaml --describe --figure a.txt",
            "figure: found 'a.txt'; allowed",
        ),
        ("tune experiment.yaml", "experiment.yaml: data: unknown field; allowed: base, grid"),
    ],
)
def test_bad_input_is_one_sentence(command, line, sentence):
    Path("wrong.yaml").write_text(yaml.safe_dump({"base": BASE, "grid": {"local.lrr": [1, 2]}}))
    Path("one.yaml").write_text(yaml.safe_dump({"base": BASE, "list": [{"local.lr": 1}]}))
    ended = command(f"{line} --out out", 2)
    assert sentence in ended.err
    assert len(ended.err.splitlines()) == 1
    assert not Path("out").exists()


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"needs the package optuna .* the extra 'tune'"):
        mnemos.advise("experiment.yaml", budget="10s", out="out", view=False)
    assert not Path("out").exists()
