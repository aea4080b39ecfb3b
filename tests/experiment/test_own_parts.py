"""Parts of users' own: named by import path, passed as objects, or installed as plug-ins."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

import mnemos
from mnemos.common.imports import by_name_alone
from mnemos.common.registry import Part
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment, load_experiment, read_experiment
from mnemos.objectives.objective import objectives
from mnemos.runs.run import create
from mnemos.studies.study import Study

CODE = '''
"""A loss, a server step and a method."""

from typing import Annotated

from pydantic import Field

from mnemos.methods.part import ServerStep, server_steps
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.objectives.objective import Objective

IMPORTED = True


class Focal(Objective):
    """(1 − p)^γ · −log p."""

    gamma: float = Field(2.0, ge=0, description="γ")

    def __call__(self, logits, labels, counts):
        log = logits.log_softmax(1).gather(1, labels[:, None]).squeeze(1)
        return -((1 - log.exp()) ** self.gamma) * log


class Damped(ServerStep):
    """x ← x + ρ · mean Δ."""

    rho: float = Field(0.5, gt=0, le=1)

    def step(self, server, aggregate):
        return server.model + self.rho * aggregate.delta, {}


class DampedAvg(FedAvg):
    """FedAvg with a damped step."""

    server: Annotated[ServerStep, server_steps] = Damped()


class Twice(FedAvg):
    """It needs two passes over the data."""
'''


def _module(folder: Path, name: str, monkeypatch) -> str:
    (folder / f"{name}.py").write_text(CODE)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


@pytest.fixture
def own(tmp_path, monkeypatch) -> str:
    """The name of a module of the user's own."""
    yield _module(tmp_path, "own_parts", monkeypatch)
    sys.modules.pop("own_parts", None)


@pytest.fixture
def installed(tmp_path, monkeypatch) -> Path:
    """A folder on the path with a package that offers plug-ins: its metadata."""
    module = _module(tmp_path, "plugged_parts", monkeypatch)
    about = tmp_path / "plugged_parts-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged-parts\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(
        textwrap.dedent(f"""\
            [mnemos.losses]
            focal = {module}:Focal
            ce = {module}:Focal
            missing = {module}:Nothing
            wrong = {module}:Damped

            [mnemos.methods]
            damped-avg = {module}:DampedAvg
            """)
    )
    yield about
    sys.modules.pop(module, None)


def test_options_of_own_parts_by_dotted_name(own):
    changes = {
        "method.name": f"{own}:DampedAvg",
        "method.server.rho": 0.25,
        "method.loss.name": f"{own}:Focal",
        "method.loss.gamma": 3,
    }
    experiment = load_experiment({}, changes)
    assert experiment.method.server.rho == 0.25
    assert experiment.method.loss.gamma == 3
    again = Experiment.parse(experiment.model_dump(mode="json"))
    assert again.same_as(experiment)
    assert experiment.method.dump()["server"] == {"name": f"{own}:Damped", "rho": 0.25}
    with pytest.raises(ConfigError, match=r"method\.server\.rho: found 2; allowed: > 0 and ≤ 1"):
        load_experiment({}, {**changes, "method.server.rho": 2})
    with pytest.raises(ConfigError, match=r"method\.loss\.gama: unknown field; did you mean 'gamma'\?"):
        load_experiment({}, {**changes, "method.loss.gama": 2})


def test_a_study_over_options_of_own_parts(own):
    study = Study.read(
        {
            "base": {"method": {"name": f"{own}:DampedAvg", "loss": f"{own}:Focal"}},
            "grid": {"method.server.rho": [0.1, 0.2], "method.loss.gamma": [0, 1]},
            "seeds": [0],
        }
    )
    assert [case.variant for case in study.cases()] == [
        f"rho={rho}, gamma={gamma}" for rho in (0.1, 0.2) for gamma in (0, 1)
    ]
    assert {case.experiment.method.loss.gamma for case in study.cases()} == {0, 1}


def test_an_object_has_its_own_name_and_not_its_parents(own, tmp_path):
    module = __import__(own)
    experiment = Experiment(method=module.DampedAvg(loss=module.Focal(gamma=1)))
    run = create(experiment, tmp_path / "runs")
    assert run.path.name.startswith("digits-own_parts_DampedAvg-own_parts_Focal-s0-")
    assert run.experiment.method.name == f"{own}:DampedAvg"


def test_no_part_is_without_a_name():
    kinds = [Part]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert all(kind.name for kind in kinds[1:])


def test_a_plug_in_is_found_by_its_name(installed):
    assert "focal" in objectives.names()
    experiment = load_experiment({"method": {"name": "damped-avg", "loss": {"name": "focal", "gamma": 1}}})
    assert experiment.method.loss.gamma == 1
    assert experiment.method.dump()["loss"] == {"name": "focal", "gamma": 1.0}
    assert experiment.method.name == "damped-avg"
    assert load_experiment({"method": {"loss": "focal"}}).method.loss.gamma == 2
    with by_name_alone():  # as for the plan of a federation, which may name installed parts
        assert Experiment.parse(experiment.model_dump(mode="json")).same_as(experiment)


def test_mnemos_own_parts_come_first(installed):
    assert load_experiment({"method": {"loss": "ce"}}).method.loss.__module__ == "mnemos.objectives.ce"


def test_looking_at_a_file_imports_no_plug_in(installed):
    shown = read_experiment({"method": {"name": "fedavg", "loss": {"name": "focal", "gamma": 1}}})
    assert shown.not_imported == ("focal",)
    assert shown.method.loss.dump() == {"name": "focal", "gamma": 1}
    objectives.names()
    assert "plugged_parts" not in sys.modules


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("missing", "the loss 'missing' of the package plugged-parts 1.2 can't be imported"),
        ("wrong", "'wrong' is not a Objective"),
        ("focall", r"there is no loss 'focall'; did you mean 'focal'\?"),
    ],
)
def test_a_plug_in_that_cannot_be_used(installed, name, sentence):
    with pytest.raises(ConfigError, match=sentence):
        load_experiment({"method": {"loss": name}})


def test_two_packages_with_one_name(installed):
    other = installed.parent / "other-2.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 2.0\n")
    (other / "entry_points.txt").write_text("[mnemos.losses]\nfocal = other:Focal\n")
    with pytest.raises(ConfigError, match=r"several packages \((other 2.0|plugged-parts 1.2) and .*\)"):
        load_experiment({"method": {"loss": "focal"}})


def test_a_plug_in_runs_and_its_run_is_resumed(installed, tmp_path):
    small = {"rounds": 1, "engine": "serial", "method": {"name": "damped-avg", "loss": "focal"}}
    run = mnemos.run(small, out=tmp_path / "runs")
    assert run.path.name.startswith("digits-damped-avg-focal-")
    assert mnemos.resume(run.path, 2).status.rounds == 2
