"""Runs side by side in one process: each like a run of its own on vmap, whatever the others do."""

import os
import signal

import pytest

from mnemos.engines.together import Company
from mnemos.experiment.experiment import Experiment
from mnemos.runs.execute import Silent, resume, start

FILES = "metrics.jsonl", "model.safetensors"


@pytest.fixture
def base(monkeypatch):
    """Clients with the same number of samples: four of twelve a round, with three steps each."""
    monkeypatch.setenv("MNEMOS_CORES", "1")
    return Experiment.parse(
        {
            "partition": {"name": "dirichlet", "clients": 12, "alpha": 0.5},
            "model": {"name": "mlp", "hidden": [9]},
            "participation": 0.4,
            "local": {"batch": 50},
            "rounds": 4,
            "evaluate": {"every": 2, "test_last": 2},
            "engine": "vmap",
        }
    )


def beside(experiments, folder, company=None, observers=None):
    """The runs of experiments that go on side by side; an error in place of a run that failed."""
    found = {}

    def task(place):
        def run():
            try:
                observer = observers[place] if observers else None
                found[place] = start(experiments[place], folder, observer)
            except Exception as error:
                found[place] = error

        return run

    (company or Company()).go([task(place) for place in range(len(experiments))])
    return [found[place] for place in range(len(experiments))]


def assert_same(together, alone):
    for ours, theirs in zip(together, alone, strict=True):
        for name in FILES:
            assert ours.file(name).read_bytes() == theirs.file(name).read_bytes(), (ours.path.name, name)


def test_rates_seeds_and_decays_have_the_bits_of_runs_alone(base, tmp_path):
    """P = 64·9 + 9 + 9·10 + 10 = 685 is odd, so that five clients have to be filled up to eight rows."""
    changes = [
        {"local.lr": 0.1},
        {"local.lr": 0.3},
        {"seed": 1},
        {"local.weight_decay": 0.01, "seed": 2},
    ]
    experiments = [base.override(change) for change in changes]
    company = Company()
    together = beside(experiments, tmp_path / "together", company)
    assert company.launches == base.rounds, "one for all runs in each round"
    assert_same(together, [start(experiment, tmp_path / "alone") for experiment in experiments])


def test_what_does_not_fit_together_goes_on_alone(base, tmp_path):
    """Other losses, corrections, sizes and lengths: each as alone."""
    changes = [
        {"method.loss": "wsm"},
        {"method.loss": "wsm", "seed": 1},
        {"method": "scaffold"},
        {"local.optimizer.momentum": 0.9},
        {"local.epochs": 2},
        {"rounds": 2},
        {"local.batch": 7},
    ]
    experiments = [base.override(change) for change in changes]
    together = beside(experiments, tmp_path / "together")
    assert_same(together, [start(experiment, tmp_path / "alone") for experiment in experiments])


def test_auto_takes_vmap_beside_others(base, tmp_path):
    experiments = [base.override({"engine": "auto", "seed": seed}) for seed in range(2)]
    together = beside(experiments, tmp_path / "together")
    alone = [start(base.override({"seed": seed}), tmp_path / "alone") for seed in range(2)]
    for ours, theirs in zip(together, alone, strict=True):  # the model's file names its experiment
        assert ours.file("metrics.jsonl").read_bytes() == theirs.file("metrics.jsonl").read_bytes()
    assert "together with other runs" in together[0].file("engine.json").read_text()


def test_one_that_fails_leaves_the_others_as_they_are(base, tmp_path):
    class Failing(Silent):
        def round(self, outcome):
            raise RuntimeError("a defect")

    experiments = [base.override({"seed": seed}) for seed in range(3)]
    observers = [Silent(), Failing(), Silent()]
    first, failed, last = beside(experiments, tmp_path / "together", observers=observers)
    assert str(failed) == "a defect"
    alone = [start(experiments[place], tmp_path / "alone") for place in (0, 2)]
    assert_same([first, last], alone)


def test_bits_that_differ_are_found_and_the_runs_go_on_alone(base, tmp_path, monkeypatch):
    """As if on another machine a product depended on where its matrices lie."""
    from mnemos.engines import together as module

    right = module._joint
    calls = []

    def wrong(members):
        calls.append(len(members))
        found = right(members)
        found[1][0].delta[0] += 1e-7
        return found

    monkeypatch.setattr(module, "_joint", wrong)
    experiments = [base.override({"seed": seed}) for seed in range(2)]
    together = beside(experiments, tmp_path / "together")
    assert calls == [2], "it was tried once"
    assert_same(together, [start(experiment, tmp_path / "alone") for experiment in experiments])


def test_interrupted_all_keep_what_they_have_finished(base, tmp_path):
    class Interrupting(Silent):
        def round(self, outcome):
            if outcome.round == 2:
                os.kill(os.getpid(), signal.SIGINT)

    experiments = [base.override({"seed": seed}) for seed in range(3)]
    observers = [Silent(), Interrupting(), Silent()]
    with pytest.raises(KeyboardInterrupt):
        beside(experiments, tmp_path / "together", observers=observers)
    runs = [observer.run for observer in observers]
    assert [run.status.status for run in runs] == ["interrupted"] * 3
    assert all(1 <= run.saved_rounds < 4 for run in runs)
    for run in runs:
        resume(run.path)
    assert_same(runs, [start(experiment, tmp_path / "alone") for experiment in experiments])
