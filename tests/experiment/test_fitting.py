"""Every preset runs with the default experiment, and settings that aren't the default are said."""

from contextlib import closing

import pytest

from mnemos.experiment.experiment import Experiment, load_experiment
from mnemos.federation.federation import Federation
from mnemos.methods.method import methods
from mnemos.methods.presets.feder import EffectiveRank, FedEr
from support.play import play

LINEAR = (
    "method.weighting.linear=true, which isn't the default: effective-rank uses the ranks of convolutions, "
    "and mlp has none"
)
EPOCHS = "local.epochs=2, which isn't the default: keep-trace takes its gradient in the last epoch"


@pytest.mark.parametrize("name", methods.names())
def test_every_preset_runs_with_the_default_experiment(name):
    """A round of `mnemos run --method NAME`, with the data, model and settings that nobody has chosen."""
    experiment = load_experiment({}, {"method.name": name, "engine": "serial", "rounds": 1})
    federation, (outcome,) = play(experiment)
    assert set(federation.warnings) >= set(experiment.fitted)
    assert federation.round == 1
    assert outcome.records


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"method": "feder"}, (LINEAR,)),
        ({"method": FedEr()}, (LINEAR,)),
        ({"method": {"weighting": "effective-rank"}}, (LINEAR,)),
        ({"method": "feder", "model": "cnn"}, ()),
        ({"method": {"name": "feder", "weighting": {"linear": True}}}, ()),
        ({"method": {"name": "feder", "weighting": {"linear": False}}}, ()),
        ({"method": FedEr(weighting=EffectiveRank(linear=False))}, ()),
        ({"method": "uga"}, (EPOCHS,)),
        ({"method": "uga", "local": {"lr": 0.1}}, (EPOCHS,)),
        ({"method": "uga", "local": {"epochs": 1}}, ()),
        ({"method": "uga", "local": {"steps": 5}}, ()),
        ({"method": {"name": "feder", "weighting": {"effective-rank": 0.5, "samples": 0.5}}}, ()),
        ({"method": "fedavg"}, ()),
    ],
)
def test_only_what_is_not_set_is_fitted(values, said):
    experiment = Experiment(**values)
    assert experiment.fitted == said
    again = Experiment.parse(experiment.model_dump(mode="json"))
    assert again.same_as(experiment)
    assert again.fitted == ()


def test_what_is_fitted_is_what_runs():
    experiment = load_experiment({}, {"method.name": "uga"})
    assert experiment.local.epochs == 2
    assert "epochs: 2  # default: 1" in experiment.show()
    assert load_experiment({}, {"method.name": "feder"}).method.weighting.linear
    assert experiment.same_as(Experiment().override({"method": "uga"}))
    assert experiment.same_as(load_experiment({"method": "uga", "local": {"epochs": 2}}))


def test_few_clients_have_one_in_each_round():
    with closing(Federation(load_experiment({}, {"partition.clients": 5, "engine": "serial"}))) as federation:
        assert len(federation.cohort(1)) == 1
        assert "participation=0.1 of 5 clients is less than one client: one is taken" in federation.warnings
