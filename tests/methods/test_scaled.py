"""The weights of a weighting, with factors for some clients, against numbers worked out by hand."""

import pytest
import torch

from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.methods.exchange import Cohort, TrainReply
from mnemos.methods.part import weightings
from mnemos.vector import Layout


def cohort(*samples):
    """Clients 0, 1, … with these numbers of samples."""
    vector = torch.zeros(1)
    updates = (
        TrainReply(client, 1, count, 1, 0.0, vector, vector, {}, {}) for client, count in enumerate(samples)
    )
    return Cohort(vector, vector, tuple(updates), Layout((), ()))


def scaled(of, **factors):
    entries = [{"client": int(name[1:]), "factor": factor} for name, factor in factors.items()]
    return weightings.parse({"name": "scaled", "of": of, "factors": entries})


def test_by_hand():
    """1, 1 and 2 samples are a = 3/4, 3/4, 6/4; with f = 1, 1, 1/2 they are 3/4 each, and with Σ a = 3, 1."""
    weights = [weight.parameters for weight in scaled("samples", c2=0.5).weigh_cohort(cohort(1, 1, 2))]
    assert weights == [1.0, 1.0, 1.0]


def test_all_zero_stays():
    weights = [weight.parameters for weight in scaled("uniform", c0=0.0).weigh_cohort(cohort(5))]
    assert weights == [1.0]


def test_flags_are_the_other_weightings():
    assert scaled("samples", c0=2.0).plain
    assert not scaled("effective-rank", c0=2.0).plain


def test_a_client_twice():
    factors = [{"client": 1, "factor": 0.5}, {"client": 1, "factor": 2}]
    with pytest.raises(ConfigError, match="found 1, 1; each client can be named once"):
        Experiment.parse({"method": {"weighting": {"name": "scaled", "of": "samples", "factors": factors}}})
