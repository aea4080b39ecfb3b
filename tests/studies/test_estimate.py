"""How long an experiment takes: what is counted, what is measured, what is remembered."""

import json
import os
from contextlib import closing

import pytest

from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.runs.execute import start
from mnemos.studies import estimate as module
from mnemos.studies.estimate import Amount, Cost, Estimates, estimate


@pytest.fixture
def experiment(tiny):
    return Experiment.parse(tiny)


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """A measurement that is made up; gives the experiments it was asked for."""
    monkeypatch.setenv("MNEMOS_CACHE", str(tmp_path / "cache"))
    asked = []

    def measure(experiment, amount):
        asked.append(experiment)
        return Cost(client=0.5, step=0.25, sample=0.125)

    monkeypatch.setattr(module, "_measure", measure)
    return asked


def amount(experiment):
    with closing(Federation(experiment)) as federation:
        return Amount.of(federation), federation


def test_what_there_is_to_do_by_hand(experiment):
    """The digits: 1797 samples, a fifth of them for testing, a tenth of the clients' held out."""
    found, federation = amount(experiment.override({"rounds": 25, "evaluate": {"every": 10, "test_last": 3}}))
    sizes = federation.assignment.train_sizes()
    held_out, test = len(federation.assignment.union_held_out()), len(federation.dataset.test)
    assert (found.population, found.clients) == (12, 4)
    assert found.steps == pytest.approx(sum(-(-size // 64) for size in sizes) / 12)
    assert found.samples == 3 * held_out + 3 * test  # validated in rounds 10, 20 and 25
    assert found.seconds(Cost(1, 0, 0), 25) == 100


def test_a_matrix_of_forgetting_is_every_model_on_everyones_data(experiment):
    plain, federation = amount(experiment)
    found, _ = amount(experiment.override({"evaluate.forgetting": [1, 3]}))
    assert found.samples - plain.samples == pytest.approx(
        2 * 5 * 4 * len(federation.assignment.union_held_out()) / 12
    )


def test_steps_epochs_and_batches(experiment):
    assert amount(experiment.override({"local.steps": 7}))[0].steps == 7
    assert amount(experiment.override({"method": "fedsgd"}))[0].steps == 1
    three = amount(experiment.override({"local.epochs": 3}))[0].steps
    assert three == 3 * amount(experiment)[0].steps


def test_pieces_times_what_they_take(experiment, measured):
    """4 rounds of 4 clients with 10 steps: 16 · (0.5 + 2.5) s; nothing is evaluated but the last rounds."""
    asked = experiment.override({"local.steps": 10, "evaluate": {"every": 100, "test_last": 0}})
    held_out = len(amount(asked)[1].assignment.union_held_out())
    assert estimate(asked) == 48 + 0.125 * held_out


def test_what_was_measured_is_remembered_for_experiments_that_cost_the_same(experiment, measured):
    first = estimate(experiment)
    for changes in ({"seed": 4}, {"local.lr": 9}, {"method.loss": "wsm"}, {"partition.alpha": 5}):
        assert estimate(experiment.override(changes)) is not None
    assert estimate(experiment.override({"rounds": 400})) > 30 * first
    assert len(measured) == 1
    for changes in ({"model.hidden": [9]}, {"local.batch": 2}, {"method": "scaffold"}):
        estimate(experiment.override(changes))
    assert len(measured) == 4
    estimate(experiment, cores=3)
    assert len(measured) == 5


def test_a_run_in_the_folder_says_it_best(experiment, measured, tmp_path):
    """Rounds of 2 s, after a first one that also looked for an engine."""
    run = start(experiment.override({"rounds": 12}), tmp_path / "runs")
    lines = [{"round": number, "seconds": 2.0 if number > 1 else 60.0} for number in range(1, 13)]
    run.file("timing.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    cores = run.read_json("environment.json")["cores"]
    estimates = Estimates(tmp_path / "runs", cores=cores)
    longer = experiment.override({"rounds": 30, "seed": 7, "local.lr": 1, "method.loss": "wsm"})
    assert estimates.seconds(longer) == 60
    assert not measured
    assert Estimates(tmp_path / "runs", cores=cores + 1).seconds(longer) != 60
    assert estimates.seconds(longer.override({"participation": 0.5})) != 60
    run.file("environment.json").write_text("damaged")
    assert Estimates(tmp_path / "runs", cores=cores).seconds(longer) != 60


def test_without_data_nobody_knows(experiment, measured, monkeypatch):
    monkeypatch.delenv("MNEMOS_OFFLINE")
    before = dict(os.environ)
    assert estimate(experiment.override({"data": "cifar10"})) is None  # and nothing is downloaded
    assert dict(os.environ) == before


def test_a_real_measurement(experiment, tmp_path, monkeypatch):
    monkeypatch.setenv("MNEMOS_CACHE", str(tmp_path / "cache"))
    seconds = estimate(experiment)
    assert seconds is not None
    assert seconds > 0
    (known,) = json.loads((tmp_path / "cache/costs.json").read_text()).values()
    assert set(known) == {"client", "step", "sample"}
    assert known["sample"] > 0
    assert known["step"] > 0
    # A learning rate that destroys the model costs what others do.
    assert estimate(experiment.override({"local.lr": 1e36, "local.batch": 32})) is not None
    # And a schedule that ends with the experiment is none for the rounds that are measured.
    ending = {"local.schedule": {"name": "cosine", "length": experiment.rounds}, "local.batch": 16}
    assert estimate(experiment.override(ending)) is not None
