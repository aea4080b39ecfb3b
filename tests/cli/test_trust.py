"""Looking at a run is not running it, and somebody else's code runs only if it is trusted."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mnemos
from mnemos.experiment.experiment import load_experiment
from mnemos.experiment.overrides import dump_yaml, read_yaml
from support.processes import Ended, forked, script, wait_for

MARK = "somebody-else-was-here"

CODE = f"""
from pathlib import Path

Path({MARK!r}).touch()

import torch
from torch import nn

from mnemos.data.sources.digits import Digits
from mnemos.measures.accuracy import ClassAccuracy
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.objectives.ce import CrossEntropy


class Source(Digits):
    depth: int = 3


class Method(FedAvg):
    pass


class Loss(CrossEntropy):
    pass


class Measure(ClassAccuracy):
    pass


class Steps(torch.optim.SGD):
    pass


class Net(nn.Module):
    def __init__(self, shape, classes, width=4):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, classes))

    def forward(self, x):
        return self.layers(x)
"""
"""A module that leaves a mark in the current folder when it is imported."""

CLI = "from mnemos.cli import main\n\nmain()\n"

STEPS = {"name": "library", "path": "evilmod:Steps"}

PLACES: dict[str, Any] = {
    "data": "evilmod:Source",
    "partition": {"name": "evilmod:Deal", "clients": 12, "colour": "red"},
    "stream": "evilmod:Stream",
    "model": {"name": "evilmod:Net", "options": {"width": 4}},
    "start": "evilmod:Start",
    "method": "evilmod:Method",
    "method.loss": "evilmod:Loss",
    "method.terms": [{"name": "evilmod:Term", "weight": 2.5}],
    "method.correction": "evilmod:Correction",
    "method.weighting": {"samples": 0.5, "evilmod:Weighting": 0.5},
    "method.rule": "evilmod:Rule",
    "method.server": {"name": "evilmod:Server", "lr": 0.5},
    "method.buffers": "evilmod:Buffers",
    "local.optimizer": "evilmod:Optimizer",
    "local.optimizer.path": STEPS,
    "local.schedule": "evilmod:Schedule",
    "local.augment": ["evilmod:Augment"],
    "selection": "evilmod:Selection",
    "clock": "evilmod:Clock",
    "faults": ["evilmod:Fault"],
    "screens": ["evilmod:Screen"],
    "privacy": "evilmod:Privacy",
    "measures": ["evilmod:Measure"],
    "engine": "evilmod:Engine",
}
"""Where an experiment can name code."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with forgetting and tasks, and rounds enough for an estimate of time."""
    described = {
        "partition": {"clients": 12},
        "model": {"name": "mlp", "hidden": [4]},
        "participation": 0.34,
        "rounds": 10,
        "local": {"steps": 1},
        "evaluate": {"forgetting": [1, 10]},
        "engine": "serial",
    }
    return mnemos.run(described, out=tmp_path_factory.mktemp("finished")).path


@pytest.fixture
def cli(tmp_path: Path) -> Callable[..., Ended]:
    """Runs a command in a process of its own, whose user has run nothing before."""
    path = tmp_path / "program" / "cli.py"
    path.parent.mkdir()
    path.write_text(CLI)
    (tmp_path / "here").mkdir()

    def call(*words: object, cwd: str = "here", state: str = "state") -> Ended:
        return script(path, *words, cwd=tmp_path / cwd, XDG_STATE_HOME=str(tmp_path / state))

    return call


@pytest.fixture
def here(cli: object, tmp_path: Path) -> Path:
    """The folder in which commands run; somebody else's module is there."""
    (tmp_path / "here" / "evilmod.py").write_text(CODE)
    return tmp_path / "here"


def copied(run: Path, folder: Path, changes: dict[str, Any]) -> Path:
    """A copy of a run whose experiment has been written by somebody else."""
    shutil.copytree(run, folder)
    values = read_yaml(folder / "experiment.yaml")
    for name, value in changes.items():
        node = values
        *path, leaf = name.removesuffix(".path").split(".")
        for step in path:
            node = node[step]
        node[leaf] = value
    (folder / "experiment.yaml").write_text(dump_yaml(values))
    return folder


def marked(folder: Path) -> bool:
    """Whether somebody else's module was imported; forgets it."""
    mark = folder / MARK
    found = mark.exists()
    mark.unlink(missing_ok=True)
    return found


def last(ended: Ended) -> Any:
    """The JSON object at the end of what a command has said."""
    return json.loads(ended.out.splitlines()[-1])


def sentence(ended: Ended, code: int = 2) -> str:
    """The one sentence that a command has ended with."""
    assert ended.code == code, ended
    (line,) = ended.err.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.fixture
def strangers(finished: Path, here: Path) -> Path:
    """A folder with a run for each place that can name code."""
    for name, value in PLACES.items():
        copied(finished, here / "runs" / name, {name: value})
    odd = here / "runs" / "engine.json"
    shutil.copytree(finished, odd)
    (odd / "engine.json").write_text(json.dumps({"engine": {"name": "evilmod:Engine", "workers": 3}}))
    return here / "runs"


def test_commands_that_only_read_import_nothing(strangers: Path, cli: Callable[..., Ended]) -> None:
    here, number = strangers.parent, len(PLACES) + 1

    listed = last(cli("runs", "--json"))["runs"]
    assert [run["status"] for run in listed] == ["finished"] * number
    watched = last(cli("watch", "--json"))["runs"]
    assert [run["status"] for run in watched] == ["finished"] * number
    written = last(cli("report", "runs", "--tables", "t", "--json"))
    # Of the copies that differ in measures and engine alone, which make no other group, one is shown.
    assert written["runs"] == number - 2, written["left_out"]
    assert all("same method, settings and seed" in note for note in written["left_out"])
    some = [f"runs/{name}" for name in ("data", "method", "method.terms", "method.weighting", "measures")]
    assert len(last(cli("forgetting", *some, "--json"))["methods"]) == len(some)
    assert not marked(here)


def test_a_report_shows_names_and_options_of_parts_that_it_does_not_import(
    strangers: Path, cli: Callable[..., Ended]
) -> None:
    cli("report", "runs", "--tables", "t", "--out", "r.html")
    page = (strangers.parent / "r.html").read_text()
    for name in ("Source", "Deal", "Method", "Loss", "Term", "Weighting", "Steps", "Augment"):
        assert f"evilmod:{name}" in page
    assert "colour: red" in page
    assert "weight: 2.5" in page
    assert "that takes evilmod:Source, and a report imports no code" in page
    assert "that takes evilmod:Stream, and a report imports no code" in page
    accuracy = mnemos.Run.at(strangers / "data").accuracy
    table = (strangers.parent / "t/summary.csv").read_text()
    assert "evilmod:Method + ce" in table
    assert table.count(str(accuracy)) >= len(PLACES) - 2


def test_the_page_that_follows_runs_imports_nothing(strangers: Path, tmp_path: Path) -> None:
    with forked(_watch, str(strangers.parent)) as watching:
        said = strangers.parent / "out"
        address = wait_for(lambda: said.exists() and said.read_text().partition("\n")[0], "the page")
        with urllib.request.urlopen(address.removeprefix("page: ") + "data.json", timeout=240) as answer:
            data = json.loads(answer.read())
        os.kill(watching.pid, signal.SIGINT)
        watching.join(240)
        assert watching.exitcode == 0
    assert sum(len(group["runs"]) for group in data["groups"]) == len(PLACES) - 1
    assert not marked(strangers.parent)


def _watch(folder: str) -> None:
    os.chdir(folder)
    with (Path(folder) / "out").open("wb") as file:
        os.dup2(file.fileno(), 1)
    sys.argv = ["mnemos", "watch", "--every", "0.1"]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from mnemos.cli.app import main

    main()


def test_studies_import_nothing_of_runs_that_they_find(
    finished: Path, here: Path, cli: Callable[..., Ended]
) -> None:
    """A run that has the name of one of theirs, and another experiment, is none of theirs."""
    base = read_yaml(finished / "experiment.yaml")
    study = here / "study.yaml"
    study.write_text(dump_yaml({"base": {**base, "rounds": 1}, "list": [{"local.lr": 0.1}], "seeds": [0]}))
    own = load_experiment({**base, "rounds": 1}, {"local.lr": 0.1, "seed": 0})
    for name in ("data", "method.loss", "local.optimizer.path"):
        copied(finished, here / f"runs/{name}-{own.hash()}", {name: PLACES[name]})
    planned = last(cli("sweep", study, "--dry-run", "--json"))
    assert [run["state"] for run in planned["runs"]] == ["new"]
    compared = last(cli("compare", study, "--json"))
    assert compared["variants"][0]["failed"] == 0
    assert not marked(here)


def test_a_run_is_read_in_python_without_its_code(strangers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(strangers.parent)
    monkeypatch.syspath_prepend(str(strangers.parent))
    for name in (*PLACES, "engine.json"):
        run = mnemos.Run.at(strangers / name)
        values = (run.status.rounds, run.metrics, run.forgetting(1), run.experiment, run.engine, run.accuracy)
        assert all(value is not None for value in values)
        assert run.experiment.to_yaml()
    seen = mnemos.Run.at(strangers / "partition").experiment
    assert seen.partition.dump() == {
        "name": "evilmod:Deal",
        "clients": 12,
        "validation": seen.partition.validation,
        "colour": "red",
    }
    assert seen.not_imported == ("evilmod:Deal",)
    assert mnemos.Run.at(strangers / "engine.json").engine.dump()["workers"] == 3
    assert "evilmod" not in sys.modules
    assert not marked(strangers.parent)


@pytest.fixture
def stranger(finished: Path, here: Path) -> Path:
    """A run whose data, loss, measure and optimiser are somebody else's."""
    names = ("data", "method.loss", "measures", "local.optimizer.path")
    return copied(finished, here / "stranger", {name: PLACES[name] for name in names})


def test_resume_asks_for_trust(stranger: Path, here: Path, cli: Callable[..., Ended]) -> None:
    before = {path: path.read_bytes() for path in stranger.rglob("*") if path.is_file()}
    line = sentence(cli("resume", "stranger", "--rounds", 11))
    assert line.startswith(
        "error: stranger: it names code that you have not run here before, or not with its options ("
    )
    assert f"evilmod:Loss, evilmod:Measure, evilmod:Source, evilmod:Steps of {here}/evilmod.py" in line
    assert line.endswith("look at it first, and if you trust it, add --trust (in Python, trust=True)")
    assert not marked(here)
    assert {path: path.read_bytes() for path in stranger.rglob("*") if path.is_file()} == before

    refused = cli("resume", "stranger", "--rounds", 11, "--json")
    assert (refused.code, last(refused)["exit_code"]) == (2, 2)

    trusted = cli("resume", "stranger", "--rounds", 11, "--trust", "--json")
    assert trusted.code == 0, trusted.err
    assert last(trusted)["rounds"] == 11
    assert marked(here)

    # What was trusted once is known from now on, to the same user.
    assert cli("resume", "stranger", "--rounds", 12).code == 0
    assert "evilmod:Source" in sentence(cli("resume", "stranger", "--rounds", 13, state="somebody"))


def test_an_engine_that_was_put_beside_a_run_asks_for_trust(
    strangers: Path, cli: Callable[..., Ended]
) -> None:
    """The experiment names nothing, and a resume goes on with the engine of engine.json."""
    assert "(evilmod:Engine of" in sentence(cli("resume", "runs/engine.json", "--rounds", 11))
    assert not marked(strangers.parent)


def test_a_module_of_the_same_name_elsewhere_is_not_known(
    stranger: Path, here: Path, tmp_path: Path, cli: Callable[..., Ended]
) -> None:
    """Own runs go on without a question, also when they are moved; but not with another file's code."""
    assert cli("run", "data=evilmod:Source", "rounds=1", "engine=serial", "-q").code == 0
    assert marked(here)
    (own,) = (here / "runs").iterdir()
    own.rename(here / "moved")
    assert cli("resume", "moved", "--rounds", 2, "-q").code == 0
    assert marked(here)

    download = tmp_path / "download"
    shutil.copytree(here, download)
    assert f"(evilmod:Source of {download}/evilmod.py)" in sentence(
        cli("resume", "moved", "--rounds", 3, cwd="download")
    )
    # Nor is other code of the same file, nor the same code with other options.
    known = read_yaml(here / "moved/experiment.yaml")["data"]
    copied(stranger, here / "other", {"data": known})
    line = sentence(cli("resume", "other", "--rounds", 11))
    assert "evilmod:Loss" in line
    assert "evilmod:Source" not in line
    copied(here / "moved", here / "options", {"data": {**known, "depth": 4}})
    assert "evilmod:Source" in sentence(cli("resume", "options", "--rounds", 3))
    assert not marked(here)
    assert not marked(download)


def test_a_directory_cannot_say_that_it_is_known(
    stranger: Path, here: Path, cli: Callable[..., Ended]
) -> None:
    known = cli("run", "data=evilmod:Source", "method.loss=evilmod:Loss", "rounds=1", "-q", state="theirs")
    assert known.code == 0, known.err
    marked(here)
    records = (here.parent / "theirs/mnemos/trusted.jsonl").read_text()
    for folder in (here, stranger):
        (folder / "trusted.jsonl").write_text(records)
        (folder / "mnemos").mkdir()
        (folder / "mnemos/trusted.jsonl").write_text(records)
    assert "evilmod:Source" in sentence(cli("resume", "stranger", "--rounds", 11))
    assert not marked(here)


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 2)])
def test_a_person_at_a_terminal_is_asked(
    answer: str, code: int, stranger: Path, here: Path, tmp_path: Path
) -> None:
    ours, theirs = pty.openpty()
    words = ["resume", "stranger", "--rounds", "11", "--quiet"]
    state = str(tmp_path / answer)
    said = b""

    def question() -> bool:
        nonlocal said
        said += os.read(ours, 10_000)
        return b"Run this code now? [y/N]" in said

    with forked(_at_terminal, os.ttyname(theirs), str(here), words, state) as asking:
        wait_for(question, "the question")
        assert not marked(here)
        assert b"evilmod:Source" in said
        os.write(ours, f"{answer}\n".encode())
        asking.join(240)
        assert asking.exitcode == code
    os.close(ours)
    os.close(theirs)
    assert marked(here) == (answer == "y")
    assert mnemos.Run.at(stranger).status.rounds == (11 if answer == "y" else 10)


def _at_terminal(name: str, folder: str, words: list[str], state: str) -> None:
    terminal = os.open(name, os.O_RDWR | os.O_NOCTTY)
    for number in range(3):
        os.dup2(terminal, number)
    sys.stdin, sys.stdout, sys.stderr = (open(n, "rw"[n > 0], closefd=False) for n in range(3))  # noqa: SIM115
    os.chdir(folder)
    os.environ["XDG_STATE_HOME"] = state
    sys.argv = ["mnemos", *words]
    from mnemos.cli.app import main

    main()


RECIPE = """
title: Digits
item: table 1
paper: {citation: "Nobody, 2020"}
base: {data: "evilmod:Source", model: {name: mlp, hidden: [4]}, rounds: 2, engine: serial, local: {steps: 1}}
rows: {CE: {}, theirs: {method.loss: "evilmod:Loss"}}
columns: {slow: {local.lr: 0.01}}
seeds: [0]
"""


def test_reproduce_asks_for_trust(here: Path, cli: Callable[..., Ended]) -> None:
    (here / "recipe.yaml").write_text(RECIPE)
    line = sentence(cli("reproduce", "recipe.yaml", "--quiet"))
    assert line.startswith("error: recipe.yaml: it names code that you have not run here before, or not with")
    assert "(evilmod:Loss, evilmod:Source of" in line
    assert not marked(here)
    shown = here / "shown.yaml"
    shown.write_text(RECIPE.replace("evilmod:", "").replace("Source", "digits").replace("Loss", "wsm"))
    shown.write_text(shown.read_text() + "show: evilmod:Show\n")
    assert "(evilmod:Show of" in sentence(cli("reproduce", "shown.yaml", "--quiet"))
    assert not marked(here)
    trusted = cli("reproduce", "recipe.yaml", "--quiet", "--jobs", 1, "--trust", "--json")
    assert trusted.code == 0, trusted.err
    assert [cell["seeds"] for cell in last(trusted)["cells"]] == [1, 1]
    assert marked(here)


def test_a_federations_server_asks_for_trust(finished: Path, here: Path, cli: Callable[..., Ended]) -> None:
    data = {
        "name": "elsewhere",
        "shape": [8, 8],
        "kind": "uint8",
        "classes": ["0", "1"],
        "mean": [0.5],
        "std": [0.5],
        "owners": [{"owner": name, "train": 60} for name in "ab"],
    }
    changes = {
        "data": data,
        "partition": "natural",
        "engine": "flower",
        "participation": 1.0,
        "model": PLACES["model"],
    }
    copied(finished, here / "federation", changes)
    line = sentence(cli("federate", "serve", "federation", "--plain", "--owners", 2))
    assert (
        "federation: it names code that you have not run here before, or not with its options (evilmod:Net"
        in line
    )
    assert not marked(here)


def test_an_own_experiment_needs_no_trust(here: Path, cli: Callable[..., Ended]) -> None:
    """Whoever names code in a command or a file of their own wants it to run."""
    (here / "own.yaml").write_text("data: evilmod:Source\nmodel: evilmod:Net\nrounds: 2\nengine: serial\n")
    assert cli("run", "own.yaml", "-q").code == 0
    assert marked(here)
    (here / "study.yaml").write_text(
        "base: {model: 'evilmod:Net', rounds: 3, engine: serial}\n"
        "grid: {method.loss: [ce, 'evilmod:Loss']}\nseeds: [0]\n"
    )
    assert cli("compare", "study.yaml", "-q", state="none").code == 0
    # Both runs are found again, and the one that isn't finished goes on.
    for status in (here / "runs").glob("*/status.json"):
        if "evilmod_Loss" in str(status):
            status.unlink()
            (status.parent / "model.safetensors").unlink()
    again = cli("sweep", "study.yaml", "-q", "--jobs", 1, "--json", state="nobody")
    assert again.code == 0, again.err
    assert [variant["failed"] for variant in last(again)["variants"]] == [0, 0]
    assert len(list((here / "runs").glob("*/status.json"))) == 3


def described(changes: dict[str, Any]) -> dict[str, Any]:
    """A small experiment that is written by another person, as `copied` writes it."""
    values: dict[str, Any] = {"rounds": 1, "engine": "serial", "local": {"steps": 1}}
    for name, value in changes.items():
        *path, leaf = name.removesuffix(".path").split(".")
        node = values
        for step in path:
            node = node.setdefault(step, {} if step != "method" else {"name": "fedavg"})
        node[leaf] = value
    return values


def test_showing_an_experiment_of_a_file_imports_nothing(here: Path, cli: Callable[..., Ended]) -> None:
    """A part is shown by its name and options, and what is marked is what the file says."""
    some = {
        name: PLACES[name] for name in ("data", "partition", "model", "method.loss", "local.optimizer.path")
    }
    (here / "theirs.yaml").write_text(dump_yaml(described(some)))
    told = cli("run", "theirs.yaml", "--show")
    assert told.code == 0, told.err
    paths = "evilmod:Deal, evilmod:Loss, evilmod:Net, evilmod:Source, evilmod:Steps"
    first, second, *_ = told.out.splitlines()
    assert first.startswith("# not imported, and shown as written, without defaults: [")
    assert first.replace("'", "").endswith(f"[{paths}]; --trust imports it")
    assert second.startswith("# experiment, ")
    assert "colour: red" in told.out
    facts = last(cli("run", "theirs.yaml", "--show", "--json"))
    assert facts["hash"] is None
    assert facts["not_imported"] == paths.split(", ")
    assert facts["experiment"]["partition"]["colour"] == "red"
    assert not marked(here)
    (here / "theirs.yaml").write_text("data: evilmod:Source\nmodel: evilmod:Net\n")
    trusted = last(cli("run", "theirs.yaml", "--show", "--trust", "--json"))
    assert trusted["experiment"]["data"]["depth"] == 3  # a default of the class
    assert len(trusted["hash"]) == 12
    assert marked(here)


@pytest.fixture
def study(here: Path) -> Path:
    """A study of another person, with a variant for each place that can name code."""
    variants = {name: described({name: value}) for name, value in PLACES.items()}
    (here / "study.yaml").write_text(dump_yaml({"variants": variants, "seeds": [0, 1]}))
    return here / "study.yaml"


@pytest.mark.parametrize("command", ["compare", "sweep"])
def test_showing_a_study_imports_nothing(
    command: str, study: Path, here: Path, cli: Callable[..., Ended]
) -> None:
    told = cli(command, study, "local.lr=0.25", "--show", "--json")
    assert told.code == 0, told.err
    variants = {one["variant"]: one for one in last(told)["variants"]}
    assert variants.keys() == PLACES.keys()
    assert all("evilmod:" in json.dumps(one["experiment"]) for one in variants.values())
    assert {one["hash"] for one in variants.values()} == {None}
    assert not marked(here)


def test_a_mistake_beside_code_that_is_not_imported_is_still_told(
    here: Path, cli: Callable[..., Ended]
) -> None:
    (here / "theirs.yaml").write_text("model: evilmod:Net\nmethod: fedagv\n")
    assert "did you mean" in sentence(cli("run", "theirs.yaml", "--show"))
    assert not marked(here)


def test_a_dry_run_asks_for_trust(here: Path, cli: Callable[..., Ended]) -> None:
    base = "{data: 'evilmod:Source', rounds: 1, engine: serial, local: {steps: 1}}"
    (here / "study.yaml").write_text(f"base: {base}\nlist: [{{local.lr: 0.1}}]\nseeds: [0]\n")
    line = sentence(cli("sweep", "study.yaml", "--dry-run"))
    assert "study.yaml: it names code that you have not run here before" in line
    assert f"(evilmod:Source of {here}/evilmod.py)" in line
    assert not marked(here)
    planned = last(cli("sweep", "study.yaml", "--dry-run", "--trust", "--json"))
    assert [run["state"] for run in planned["runs"]] == ["new"]
    assert marked(here)
    assert cli("sweep", "study.yaml", "--dry-run").code == 0  # it is known from now on


def test_a_partition_imports_data_and_partition_alone_and_asks_for_trust(
    here: Path, cli: Callable[..., Ended]
) -> None:
    others = {name: PLACES[name] for name in ("model", "method.loss", "measures", "local.optimizer.path")}
    (here / "theirs.yaml").write_text(dump_yaml(described(others)))
    assert last(cli("partition", "theirs.yaml", "--json"))["status"] == "finished"
    assert not marked(here)
    for name in ("data", "partition"):
        (here / "theirs.yaml").write_text(dump_yaml(described({**others, name: PLACES[name]})))
        line = sentence(cli("partition", "theirs.yaml"))
        assert f"{'evilmod:Source' if name == 'data' else 'evilmod:Deal'} of {here}/evilmod.py" in line
        assert "Net" not in line
        assert not marked(here)
    (here / "theirs.yaml").write_text("data: evilmod:Source\nmodel: not_there:Net\n")
    assert cli("partition", "theirs.yaml", "--trust").code == 0
    assert marked(here)
    assert cli("partition", "data=evilmod:Source", state="other").code == 0  # the command names it itself


def test_a_timeline_asks_for_trust(here: Path, cli: Callable[..., Ended]) -> None:
    (here / "theirs.yaml").write_text("data: evilmod:Source\nstream: {name: tasks, tasks: 2}\n")
    assert "evilmod:Source of" in sentence(cli("timeline", "theirs.yaml"))
    assert not marked(here)


def test_no_file_of_the_current_folder_stands_in_for_a_library(finished: Path, tmp_path: Path) -> None:
    """Nor does a matplotlibrc there have LaTeX, which could write files, set the labels."""
    shutil.copytree(finished, tmp_path / "runs/a")
    for name in ("pandas", "matplotlib", "torch", "rich", "numpy", "json"):
        (tmp_path / f"{name}.py").write_text(f"open({MARK!r}, 'w').close()\n")
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nbackend: module://evilmod\n")
    (tmp_path / "evilmod.py").write_text(CODE)
    (tmp_path / "study.yaml").write_text(
        textwrap.dedent("""
            base: {data: digits, rounds: 1, engine: serial, model: {name: mlp, hidden: [4]}}
            list: [{local.lr: 0.1}]
            seeds: [0]
        """)
    )
    program = [sys.executable, "-P", "-c", CLI]
    for words in (["forgetting", "runs"], ["sweep", "study.yaml", "--out", "new", "--jobs", "1"]):
        ended = subprocess.run([*program, *words], cwd=tmp_path, capture_output=True, text=True, timeout=240)
        assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "forgetting.png").exists()
    assert not marked(tmp_path)
