"""`mnemos doctor`: what it finds, what it says about it, and when it ends with 1."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from rich.console import Console

from mnemos.cli.commands import doctor
from mnemos.cli.doctor import devices, folders, optional, versions
from mnemos.common.extras import EXTRAS
from mnemos.version import __version__
from support.processes import Command

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
HEAVY = ("pandas", "sklearn", "scipy", "matplotlib", "pyarrow", "ray", "flwr", "mnemos.experiment")


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch, tmp_path):
    """A machine without cards, with a cache of its own."""
    monkeypatch.setattr(devices, "NVIDIA", tmp_path / "nvidia")
    monkeypatch.setattr(devices, "AMD", tmp_path / "kfd")
    monkeypatch.setattr(devices.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setenv("MNEMOS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MNEMOS_DATA", raising=False)
    monkeypatch.delenv("MNEMOS_CORES", raising=False)


@pytest.fixture
def bare(monkeypatch):
    """Neither of the programs that are looked for."""
    monkeypatch.setattr(devices.shutil, "which", lambda name: None)


@pytest.mark.usefixtures("bare")
def test_a_sound_machine(command):
    found = command("doctor --json").json
    assert found["status"] == "sound"
    assert (found["mnemos"], found["torch"]) == (__version__, torch.__version__)
    assert found["build"] == versions.build_of(torch)
    assert found["devices"][0] == {"device": "cpu", "called": "cpu", "free": None, "works": True}
    assert found["cores"] >= 1
    assert found["extras"].keys() == EXTRAS.keys()
    assert found["install"]["ray"].endswith("--editable '.[ray]'")
    assert "exit_code" not in found
    lines = command("doctor").out.splitlines()
    assert lines[0] == "versions"
    assert f"  mnemos       {__version__}" in lines
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.usefixtures("bare")
def test_it_fits_into_80_columns_without_colour(command, monkeypatch):
    monkeypatch.setattr(doctor, "Console", lambda **_: Console(width=80, no_color=True))
    monkeypatch.setattr(optional, "installed", lambda package: None)
    lines = command("doctor").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in "".join(lines)
    assert any("without flwr: in the project's folder, pip install" in line for line in lines)
    assert lines[-1] == "no problems found"


def test_the_tables_are_those_of_the_project():
    project = tomllib.loads(PROJECT.read_text())["project"]

    def names(requirements):
        return {requirement.partition(">")[0].partition("<")[0] for requirement in requirements}

    assert set(versions.REQUIRED) == names(project["dependencies"])
    extras = project["optional-dependencies"]
    assert {name: set(packages) for name, packages in EXTRAS.items()} == {
        name: names(extras[name]) for name in extras if name not in {"dev", "docs"}
    }


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("variable", "value", "code", "words"),
    [
        ("MNEMOS_CORES", "many", 1, "broken: MNEMOS_CORES: found 'many'; expected a whole number ≥ 1"),
        ("MNEMOS_DATA", "/nowhere/at/all", 0, "problem: MNEMOS_DATA names /nowhere/at/all, which is no fol"),
        ("MNEMOS_DATA", "~no-such-user/x", 1, "broken: ~no-such-user/x can't be looked for"),
        ("CXX", "no-such-compiler", 0, "problem: there is no no-such-compiler, which some tests need; what"),
    ],
)
def test_wrong_variables(command, monkeypatch, variable, value, code, words):
    monkeypatch.setenv(variable, value)
    assert words in command("doctor", code).out
    found = command("doctor --json", code).json
    assert (found["status"], found.get("exit_code")) == (("broken", 1) if code else ("sound", None))
    problem = next(
        problem for problem in found["problems"] if problem["what"] in words or value in problem["what"]
    )
    assert problem["broken"] == bool(code)
    assert problem["do"]


@pytest.mark.usefixtures("bare")
def test_without_pytorch_it_says_so_and_goes_on(command, monkeypatch):
    monkeypatch.setattr(doctor, "import_torch", lambda: (None, "OSError: libcudart.so is missing"))
    found = command("doctor --json", 1).json
    assert (found["torch"], found["devices"], found["status"]) == (None, [], "broken")
    assert found["problems"][0] == {
        "what": "PyTorch can't be imported (OSError: libcudart.so is missing)",
        "do": "in the project's folder, pip install --constraint constraints.txt --editable .",
        "broken": True,
    }
    assert "data_sets" not in found
    assert found["extras"]


def test_why_pytorch_cannot_be_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    module, why = versions.import_torch()
    assert module is None
    assert why.startswith("ModuleNotFoundError: ")


def test_packages_that_are_missing(command, monkeypatch):
    real = versions.installed
    monkeypatch.setattr(versions, "installed", lambda name: None if name == "pandas" else real(name))
    assert "broken: packages are missing: pandas; what to do: in the project's" in command("doctor", 1).out


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("card", "build", "words"),
    [
        ("nvidia", "CPU", "there is a NVIDIA card or driver, but this PyTorch is built for CPU"),
        ("nvidia", "ROCm 6.4", "there is a NVIDIA card or driver, but this PyTorch is built for ROCm 6.4"),
        ("nvidia", "CUDA 12.8", "PyTorch is built for CUDA 12.8, but finds no device"),
        ("kfd", "CPU", "there is a AMD card or driver, but this PyTorch is built for CPU"),
    ],
)
def test_a_card_that_is_not_used(command, monkeypatch, tmp_path, card, build, words):
    (tmp_path / card).touch()
    monkeypatch.setattr(devices, "build_of", lambda _: build)
    monkeypatch.setattr("mnemos.common.devices.device_names", lambda: ["cpu"])
    assert f"problem: {words}; what to do: " in command("doctor").out


@pytest.mark.usefixtures("bare")
def test_a_device_that_does_not_work(command, monkeypatch):
    monkeypatch.setattr("mnemos.common.devices.device_names", lambda: ["cpu", "cuda:77"])
    found = command("doctor --json", 1).json
    assert [device["works"] for device in found["devices"]] == [True, False]
    assert found["problems"][0]["what"].startswith("cuda:77 doesn't work (")
    assert "train with --device cpu" in found["problems"][0]["do"]


def test_devices_have_names_and_memory(tmp_path):
    with Command("doctor", cwd=tmp_path, pretend=True) as command:
        out = command.ended().out
    assert "  pretend:0    Pretend accelerator 0, " in out
    assert " GB free" in out.partition("pretend:1")[2].splitlines()[0]


@pytest.mark.usefixtures("bare")
def test_data_sets_are_found_by_their_files(command, monkeypatch, tmp_path):
    files = [
        *(f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6)),
        "cifar-10-batches-bin/test_batch.bin",
        "cifar-100-binary.tar.gz",
        *(
            f"mnist/{part}-{kind}-ubyte.gz"
            for part in ("train", "t10k")
            for kind in ("images-idx3", "labels-idx1")
        ),
        "fashion-mnist/train-images-idx3-ubyte",
        "femnist/train/a.json",
    ]
    for name in files:
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).touch()
    monkeypatch.setenv("MNEMOS_DATA", str(tmp_path / "data"))
    found = command("doctor --json").json
    assert found["data"] == str(tmp_path / "data")
    assert found["data_sets"] == {
        "cifar10": True,
        "cifar100": True,
        "fashion-mnist": False,
        "femnist": False,
        "mnist": True,
    }
    assert "digits (embedded), cifar10, cifar100, mnist\n" in command("doctor").out


@pytest.mark.usefixtures("bare")
def test_folders_without_room_or_rights(command, monkeypatch):
    real = folders.os.access
    monkeypatch.setattr(folders.os, "access", lambda path, mode: mode == os.F_OK and real(path, mode))
    monkeypatch.setattr(folders, "_LITTLE", 1e30)
    out = command("doctor").out
    assert "can't be written (" in out
    assert "of disk space left; what to do: free some" in out


@pytest.mark.usefixtures("bare")
def test_a_data_folder_that_cannot_be_looked_into(command, monkeypatch):
    def refuse():
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(folders, "_data_sets", refuse)
    assert "can't be read (Permission denied); what to do: change its permissions" in command("doctor").out


def test_it_imports_nothing_heavy_beside_pytorch(tmp_path):
    program = (
        "import json, sys; from mnemos.cli.app import main; sys.argv = ['mnemos', 'doctor', '--json']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        f"print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    facts, imported = map(json.loads, ended.stdout.splitlines())
    assert facts["status"] == "sound"
    assert imported == []
