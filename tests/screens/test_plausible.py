"""What is sent beside the model is no way around screening: lies that are finite and have the right shape."""

from contextlib import closing
from dataclasses import replace

import pytest
import torch
from torch import nn

from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.methods.exchange import TrainReply
from mnemos.methods.presets.scaffold import ControlVariates
from mnemos.optim.local import Local
from mnemos.vector import Layout

SOME = {"data": "digits", "partition": {"clients": 4}, "participation": 1.0, "rounds": 2}
BASE = {**SOME, "model": {"name": "mlp", "hidden": [6]}, "local": {"steps": 3}, "engine": "serial"}
PROTOTYPES = {"name": "fedavg", "terms": ["prototypes"]}


def is_rejected(lie, **changes):
    """Whether client 2 alone is put aside, as not plausible; the server stays finite."""
    federation = Federation(Experiment.parse({**BASE, **changes}))
    with closing(federation), federation.open() as runner:
        run = runner.run

        def lying(tasks):
            for update in run(tasks):
                yield lie(update) if update.client == 2 else update

        runner.run = lying
        outcome = federation.advance(runner)
        assert federation.server.model.isfinite().all()
        assert all(tensor.isfinite().all() for tensor in federation.server.tensors.values())
    rejected = {record.client: record.name for record in outcome.records if record.name.startswith("rej")}
    return rejected == {2: "rejected: not plausible"}


def test_who_says_the_truth_is_heard():
    assert not is_rejected(lambda update: update, method="fednova")


def says(name, change):
    """A client that says something else beside its model."""
    return lambda update: replace(update, change={**update.change, name: change(update.change[name])})


@pytest.mark.parametrize("work", [0.0, -3.0, 1e-30, 2.9, 3.1, 1e30])
def test_fednova_is_told_of_work_that_was_done(work):
    """Three steps of plain SGD are 3: 0 would make the model infinite, 1e-30 a single client decide."""
    assert is_rejected(says("fednova.a", lambda a: torch.full_like(a, work)), method="fednova")


def test_fednova_knows_of_schedules():
    """Nobody is wrongly put aside: rates differ from epoch to epoch, and a batch of one is left out."""
    changes = {
        "method": "fednova",
        "model": {"name": "mlp", "hidden": [6], "norm": "batch"},
        "local": {
            "epochs": 3,
            "batch": 16,
            "optimizer": {"name": "sgd", "momentum": 0.9},
            "schedule": {"name": "step", "size": 1, "gamma": 0.1, "over": "epochs"},
        },
    }
    federation = Federation(Experiment.parse({**BASE, **changes}))
    with closing(federation), federation.open() as runner:
        assert not [record for record in federation.advance(runner).records if "rejected" in record.name]


@pytest.mark.parametrize("value", [-1.0, 0.5, 1e30])
def test_label_owners_hold_a_class_or_not(value):
    lie = says("label-owners.held", lambda held: torch.full_like(held, value))
    assert is_rejected(lie, method="label-owners")


def test_curvature_is_not_below_zero():
    assert is_rejected(says("fedcurv.fisher", lambda fisher: -fisher - 1), method="fedcurv")


def test_variances_of_gradients_are_not_below_zero():
    """It would have all the weight."""
    assert is_rejected(says("precision.variance", lambda variance: -variance - 1), method="precision")


@pytest.mark.parametrize(
    ("entry", "value"),
    [("running_var", -0.1), ("num_batches_tracked", -1.0), ("num_batches_tracked", 2.0**25)],
)
def test_batch_norm_has_statistics_that_can_be(entry, value):
    """The last of six variances, or the counter, which a float doesn't count beyond 2²⁴."""
    model = {"name": "mlp", "hidden": [6], "norm": "batch"}

    def lie(update):
        layout = Layout.of(nn.BatchNorm1d(6))
        buffers = update.buffers.clone()
        layout.buffer_views(buffers)[entry].view(-1)[-1] = value
        return replace(update, buffers=buffers)

    assert is_rejected(lie, model=model)
    assert not is_rejected(lambda update: update, model=model)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("samples", 0.0),
        ("samples", -5.0),
        ("samples", 1e30),
        ("known", -1.0),
        ("known", 1e30),
        ("radius", -1.0),
    ],
)
def test_prototypes_are_of_the_samples_that_there_are(name, value):
    lie = says(f"prototypes.{name}", lambda tensor: torch.full_like(tensor, value))
    assert is_rejected(lie, method=PROTOTYPES)


def test_scaffold_is_believed_where_it_has_converged():
    """Near an optimum control variates are large, as clients' data differ, and their changes are next to
    nothing: less than the rounding of the variates. Nobody is put aside for it."""
    changes = {
        "partition": {"clients": 4, "alpha": 0.1, "validation": 0},
        "model": "logistic",
        "method": "scaffold",
        "local": {"batch": 2000, "epochs": 5, "lr": 0.2, "weight_decay": 0.2},
        "rounds": 70,
        "evaluate": {"every": 1000, "test_last": 0, "patience": 0},
    }
    federation = Federation(Experiment.parse({**BASE, **changes}))
    left_out = []
    with closing(federation), federation.open() as runner:
        while federation.round < 70:
            before = federation.server.model
            records = federation.advance(runner).records
            left_out += [record for record in records if record.name.startswith("rejected")]
    assert not left_out
    assert (federation.server.model - before).norm() < 1e-5 * before.norm()


def test_scaffold_with_steps_at_a_rate_of_zero():
    """A schedule that begins with 0: two steps at 0 and 0.1, K η = 0.1, so that −10 Δ is sent. How much it
    is can't be told from above then, but its direction can."""
    correction = ControlVariates(option="II")
    delta, nothing = torch.tensor([0.3, -0.4]), torch.zeros(2)
    update = TrainReply(0, 1, 1, 2, 0.0, delta, torch.zeros(0), {"scaffold.c": -10 * delta}, {})

    def believed(update):
        return correction.plausible(update, {"scaffold.c": nothing}, Local(), lambda: ((1, 0.0), (1, 0.1)))

    assert believed(update)
    assert not believed(replace(update, change={"scaffold.c": torch.tensor([3.0, 4.0])}))
