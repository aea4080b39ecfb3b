"""Runs of a study on devices: one a device, and a run that was made under another name of its device."""

import json

import pytest

import mnemos
from mnemos.errors import ConfigError
from mnemos.runs.find import find
from mnemos.studies.bundles import Bundles
from mnemos.studies.pool import StudyView, _Pool, jobs_for
from mnemos.studies.results import Ledger
from mnemos.studies.study import Case
from support import pretend
from support.play import small

pretend.install()
BOTH = ["pretend:0", "pretend:1"]


def on(device, seed=0, **options):
    return small(seed=seed, engine={"name": "serial", "device": device, **options})


def cases(*devices):
    return [Case(f"v{index}", on(device, index)) for index, device in enumerate(devices)]


@pytest.mark.parametrize(
    ("devices", "jobs"),
    [
        (["cpu"] * 5, 4),
        (["pretend"] * 5, 1),
        (["pretend:0", "pretend:1"] * 3, 2),
        (["pretend", "pretend:0"], 1),  # two names of one device
        ([BOTH] * 3, 1),
        (["pretend:0", BOTH, "pretend:1"], 2),
        (["cpu", "cpu", "pretend"], 1),
        (["cuda:7"] * 5, 4),  # which isn't there, as another sentence says
    ],
)
def test_one_run_a_device(devices, jobs, monkeypatch):
    monkeypatch.setenv("MNEMOS_CORES", "4")
    assert jobs_for(cases(*devices)) == jobs
    assert jobs_for(cases(*devices), 2) == 2


class Process:
    """A worker that does nothing."""

    def __init__(self, _cores):
        self.orders = []

    def order(self, experiment, _folder):
        self.orders.append(experiment)


def given_out(monkeypatch, tmp_path, jobs, *devices):
    """The devices of the runs that a pool begins with."""
    monkeypatch.setattr("mnemos.studies.pool.WorkerProcess", Process)
    found = cases(*devices)
    work = Bundles.of(found, jobs, together=False)
    pool = _Pool(tmp_path, work, StudyView(), Ledger(found, tmp_path, None), None)
    pool._give_out()
    return pool, devices_in_use(pool)


def devices_in_use(pool):
    return [case.experiment.engine.device for cases in pool._busy.values() for case in cases.values()]


def test_two_runs_at_a_time_are_on_two_devices(monkeypatch, tmp_path):
    devices = ("pretend:0", "pretend:0", "pretend:1", "pretend:1", "pretend:0")
    pool, begun = given_out(monkeypatch, tmp_path, 2, *devices)
    assert begun == ["pretend:0", "pretend:1"]
    first = next(iter(pool._busy))
    pool._free(first, 0)
    pool._give_out()
    assert sorted(devices_in_use(pool)) == BOTH
    assert [case.variant for bundle in pool._left for case in bundle] == ["v3", "v4"]


def test_more_runs_than_devices_share_them_if_asked_to(monkeypatch, tmp_path):
    _, begun = given_out(monkeypatch, tmp_path, 3, *["pretend:0"] * 4)
    assert begun == ["pretend:0"] * 3


# What is the same run.


def test_what_auto_has_done_on_the_cpu_is_not_done_again_for_cpu(tmp_path):
    run = mnemos.run(on("auto"), out=tmp_path)
    assert run.devices == [("cpu",)]
    assert find(on("cpu"), tmp_path) == run
    assert find(on("auto"), tmp_path) == run
    assert find(on("pretend"), tmp_path) is None
    assert find(on("cpu", seed=1), tmp_path) is None
    assert find(on("cpu", exact=True), tmp_path) is None


def test_what_was_done_for_cpu_is_not_done_again_for_auto(tmp_path):
    run = mnemos.run(on("cpu"), out=tmp_path)
    assert find(on("auto"), tmp_path) == run


def test_a_device_by_another_name(tmp_path):
    run = mnemos.run(on("pretend"), out=tmp_path)
    assert run.devices == [("pretend:0",)]
    assert find(on("pretend:0"), tmp_path) == run
    assert find(on("pretend:1"), tmp_path) is None
    assert find(on("cpu"), tmp_path) is None
    assert find(on("auto"), tmp_path) is None


def test_what_auto_has_done_on_an_accelerator_is_not_a_run_on_the_cpu(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("mnemos.common.devices.KINDS", ("pretend",))
        run = mnemos.run(on("auto"), out=tmp_path)
        assert run.devices == [("pretend:0",)]
        assert find(on("pretend:0"), tmp_path) == run
        assert find(on("cpu"), tmp_path) is None
    assert find(on("cpu"), tmp_path) is None
    assert find(on("auto"), tmp_path) == run  # to the letter, as when a folder goes to another machine


def test_a_run_that_changed_its_device_is_one_of_neither(tmp_path):
    run = mnemos.run(on("auto"), out=tmp_path)
    mnemos.resume(run.path, rounds=4, device="pretend:0")
    assert run.devices == [("cpu",), ("pretend:0",)]
    longer = {"rounds": 4}
    assert find(on("cpu").override(longer), tmp_path) is None
    assert find(on("pretend:0").override(longer), tmp_path) is None


def test_a_sweep_over_names_of_one_device_takes_what_is_there(tmp_path):
    mnemos.run(on("auto"), out=tmp_path)
    ledger = Ledger([Case("cpu", on("cpu")), Case("there", on("pretend"))], tmp_path, None)
    assert [case.variant for case in ledger.left] == ["there"]


@pytest.mark.parametrize(
    "text", ["", "[]", json.dumps({"used": 3}), json.dumps({"used": [3, {"device": 4}]})]
)
def test_a_damaged_record_is_no_run_of_another_name(tmp_path, text):
    run = mnemos.run(on("auto"), out=tmp_path)
    run.file("engine.json").write_text(text)
    assert find(on("cpu"), tmp_path) is None
    assert find(on("auto"), tmp_path) == run


def test_a_list_of_devices_is_nothing_for_ray():
    with pytest.raises(ConfigError) as refused:
        small(engine={"name": "ray", "device": ["cuda:0", "cuda:1"]})
    assert str(refused.value) == (
        "engine.device: found cuda:0, cuda:1; a worker has one device, and Ray gives each its own: "
        "allowed: one name, such as cuda, with engine.gpus and engine.workers for how many"
    )
