"""Every method: the engines agree on it, it learns, and an interruption leaves no trace."""

import pytest
import torch
from torch import nn

import mnemos
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.methods.method import methods
from mnemos.runs.execute import resume
from mnemos.vector import Layout
from support.interrupt import Stop
from support.play import play

SCAFFOLD_I = {"name": "scaffold", "correction": {"name": "scaffold", "option": "I"}}
MIXED = {
    "name": "fedavg",
    "terms": [
        {"name": "proximal", "mu": 0.1},
        {"name": "contrastive", "mu": 0.5},
        {"name": "curvature", "strength": 0.1},
    ],
    "correction": "scaffold",
}
METHODS = {
    **{part.name: {"name": part.name} for part in methods if part.__module__.startswith("mnemos.")},
    "fedopt": {"name": "fedopt", "server": {"name": "adam", "lr": 0.05}},
    "fedcurv": {"name": "fedcurv", "strength": 0.1},
    "fedprox": {"name": "fedprox", "mu": 0.1},
    "fedreg": {"name": "fedreg", "correction": {"name": "fedreg", "generate_steps": 3}},
    "feder": {"name": "feder", "weighting": {"name": "effective-rank", "linear": True, "noisy": True}},
    "blend": {"name": "fedavg", "weighting": {"precision": 0.3, "samples": 0.7}},
    "uga": {"name": "uga", "server": {"name": "sgd", "lr": 1.0}},
    # At their temperature of 0.1 rounding grows tenfold in every step.
    "fedspace": {"name": "fedspace", "head": {"rotations": True, "temperature": 0.5}},
    "pass": {"name": "pass", "head": {"rotations": True, "temperature": 0.5}},
    "scaffold-I": SCAFFOLD_I,
    "mixed": MIXED,
    "mixed-too": {
        "name": "feddyn",
        "weighting": "label-owners",
        "server": "fednova",
        "terms": [{"name": "curvature", "strength": 0.1}],
    },
}
CHANGES = {
    "fedreg": {"local": {"steps": 5, "batch": 48, "lr": 0.3}},  # there are many gradients to a step
    "fedspace": {"local": {"epochs": 2, "batch": 32, "lr": 0.4}, "rounds": 5},  # rotated digits are harder
    "pass": {"local": {"epochs": 2, "batch": 32, "lr": 0.4}, "rounds": 4},
    "uga": {"rounds": 10},  # one server step a round
    "fedsgd": {"local": {"lr": 0.5}, "rounds": 12, "participation": 1.0},  # and here only one a round
}
THREADS = {"name": "threads", "workers": 2}
VMAP = {"name": "vmap", "chunk": 3}


def experiment(case, engine="serial", loss="ce", **changes):
    """Unequal clients, so that batches are masked; four of twelve a round."""
    return Experiment.parse(
        {
            "partition": {"name": "label-dirichlet", "clients": 12, "alpha": 0.5},
            "model": {"name": "mlp", "hidden": [16]},
            "method": {**METHODS[case], "loss": loss},
            "local": {"epochs": 2, "batch": 32, "lr": 0.2},
            "participation": 0.34,
            "rounds": 3,
            "engine": engine,
            **CHANGES.get(case, {}),
            "evaluate": {"every": 100, "test_last": 0},
            **changes,
        }
    )


def train(description):
    federation = Federation(description)
    start = federation.server.model
    outcome = play(federation)[1][-1]
    return federation, outcome, float((federation.server.model - start).norm())


def remembered(federation):
    """Everything that is kept between rounds."""
    clients, _ = federation.client_states.index()
    found = {f"server {name}": value for name, value in federation.server.tensors.items()}
    for client in sorted(clients.tolist()):
        found |= {f"{client} {name}": value for name, value in federation.client_states[client].items()}
    return found


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def assert_close(found, expected, tolerance):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        difference, size = float((found[name] - value).norm()), float(value.norm())
        assert difference <= tolerance * size + 1e-7, f"{name}: {difference:.1e} of {size:.1e}"


@pytest.mark.parametrize("loss", ["ce", "wsm"])
@pytest.mark.parametrize("case", METHODS)
def test_the_engines_agree_and_the_model_learns(case, loss):
    """Threads to the last bit; vmap but for rounding, with the change of the model as the measure."""
    serial, outcome, change = train(experiment(case, "serial", loss))
    threads, same, _ = train(experiment(case, THREADS, loss))
    assert_same(remembered(threads), remembered(serial))
    assert same.records == outcome.records
    many, close, _ = train(experiment(case, VMAP, loss))
    assert float((many.server.model - serial.server.model).norm()) < 1e-4 * change
    assert_close(remembered(many), remembered(serial), 1e-3)
    assert close.loss == pytest.approx(outcome.loss, rel=1e-4)
    assert outcome.validation.accuracy > 0.4  # chance is a tenth


BATCH_NORM = {"name": "mlp", "hidden": [16], "norm": "batch"}
WITH_BATCH_NORM = [
    *[
        (case, "average")
        for case in ("scaffold", "scaffold-I", "moon", "fedcurv", "feddyn", "fedreg", "fedspace")
    ],
    *[(case, "local") for case in ("scaffold-I", "mixed")],
]


def masked(federation, number, steps, batch):
    """Whether the clients of a round have batches of unequal size in some step."""
    sizes = federation.assignment.train_sizes()[federation.cohort(number)].tolist()
    return len({tuple(([batch] * (size // batch) + [size % batch])[:steps]) for size in sizes}) > 1


@pytest.mark.parametrize(("case", "policy"), WITH_BATCH_NORM)
def test_the_engines_agree_with_batch_norm(case, policy):
    """Statistics too: the samples that fill a batch up play no part, and neither do a term's other passes."""
    changes = {
        "model": BATCH_NORM,
        "method": {**METHODS[case], "buffers": policy},
        "local": {"steps": 4, "batch": 48, "lr": 0.1},
    }
    serial, _, change = train(experiment(case, "serial", **changes))
    assert all(masked(serial, number, 4, 48) for number in (1, 2, 3))
    many, _, _ = train(experiment(case, VMAP, **changes))
    assert float((many.server.model - serial.server.model).norm()) < 1e-3 * change
    assert_close(remembered(many), remembered(serial), 1e-3)
    fresh = Federation(serial.experiment).server.buffers
    assert float((serial.server.buffers - fresh).norm()) > 1.0


def interrupted(description, out, after=2):
    observer = Stop(after)
    with pytest.raises(KeyboardInterrupt):
        mnemos.run(description, out=out, observer=observer)
    return observer.run


def contents(run):
    return [run.file(name).read_bytes() for name in ("model.safetensors", "metrics.jsonl")]


def stateful(case):
    layout, method = Layout.of(nn.Linear(1, 1)), methods.parse(METHODS[case])
    return bool(method.server_state(layout) or method.client_state(layout))


STATEFUL = [case for case in METHODS if stateful(case)]


def test_the_methods_with_state():
    assert set(STATEFUL) >= {
        "fedavgm",
        "fedcurv",
        "feddyn",
        "fedopt",
        "mixed",
        "moon",
        "scaffold",
        "scaffold-I",
    }


SHORT = {
    "local": {"steps": 3, "batch": 16, "lr": 0.1},
    "rounds": 4,
    "participation": 0.4,
    "evaluate": {"every": 1, "test_last": 1},
}


RESUMED = [*[(case, "serial") for case in STATEFUL], ("mixed", VMAP), ("scaffold-I", VMAP)]


@pytest.mark.parametrize(("case", "engine"), RESUMED, ids=lambda value: str(value))
def test_an_interrupted_run_ends_where_the_whole_one_does(case, engine, tmp_path):
    description = experiment(case, engine, **SHORT)
    cohorts = [set(Federation(description).cohort(number).tolist()) for number in range(1, 5)]
    assert (cohorts[0] | cohorts[1]) & (cohorts[2] | cohorts[3])  # somebody comes back with a state
    whole = mnemos.run(description, out=tmp_path / "whole")
    part = interrupted(description, tmp_path / "part")
    assert contents(resume(part.path)) == contents(whole)


@pytest.mark.parametrize(("case", "engine"), [("fedavg", "serial"), ("mixed", "serial"), ("fedavg", VMAP)])
def test_local_statistics_survive_an_interruption(case, engine, tmp_path):
    method = {**METHODS[case], "buffers": "local"}
    description = experiment(case, engine, **{**SHORT, "model": BATCH_NORM, "method": method})
    whole = mnemos.run(description, out=tmp_path / "whole")
    part = interrupted(description, tmp_path / "part")
    assert contents(resume(part.path)) == contents(whole)


class Dropping(nn.Module):
    """A model with dropout."""

    def __init__(self, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Dropout(0.5), nn.Linear(16, classes))

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize("case", ["moon", "fedreg", "fedcurv"])
def test_dropout_is_repeatable_where_a_method_looks_at_other_models(case):
    """Nothing draws from the global generator, whose state differs from run to run and between threads."""
    changes = {"model": "test_every_method:Dropping", "local": {"steps": 3, "batch": 16, "lr": 0.1}}
    torch.manual_seed(1)
    serial, _, _ = train(experiment(case, "serial", **changes))
    torch.manual_seed(2)
    threads, _, _ = train(experiment(case, THREADS, **changes))
    assert_same(remembered(threads), remembered(serial))
