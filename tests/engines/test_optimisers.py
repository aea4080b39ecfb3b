"""Every optimiser and schedule on every engine, and states that outlive a round or an interruption."""

import json
import math

import pytest
import torch

import mnemos
from mnemos.client.messages import reply_from_bytes
from mnemos.client.trainer import train_message
from mnemos.data.dataset import Dataset, Source, Split
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.optim.optimizer import Optimizer
from mnemos.runs.execute import resume
from support.interrupt import Stop

LR = {"adam": 0.01, "adamw": 0.01, "adamp": 0.01, "library": 0.01, "rmsgd": 0.05, "sgd": 0.05}
OPTIMISERS = {
    "sgd": {"name": "sgd", "momentum": 0.9, "nesterov": True},
    "adam": {"name": "adam"},
    "adamw": {"name": "adamw"},
    "rmsgd": {"name": "rmsgd"},
    "adamp": {"name": "adamp"},
    "library": {"name": "library", "path": "torch.optim:RMSprop"},
}
HALVES = {"name": "step", "size": 1, "gamma": 0.5, "over": "epochs"}
COSINE = {"name": "cosine", "over": "epochs", "floor": 0.1}
THREADS = {"name": "threads", "workers": 2}
VMAP = {"name": "vmap", "chunk": 3}


class Small(Source):
    """Random images of three classes."""

    def load(self):
        generator = torch.Generator().manual_seed(3)
        samples = torch.randint(256, (120, 1, 12, 12), generator=generator, dtype=torch.uint8)
        split = Split(samples, torch.randint(3, (120,), generator=generator))
        return Dataset("small", split, split, ("a", "b", "c"), (127.0,), (74.0,))


def experiment(optimizer, engine="serial", **changes):
    """Unequal clients, in unequal numbers of steps and epochs."""
    local = {"epochs": 2, "batch": 8, "lr": LR[optimizer], "weight_decay": 1e-2, **changes.pop("local", {})}
    return Experiment.parse(
        {
            "data": Small(),
            "partition": {"name": "quantity", "clients": 4, "validation": 0.0, "min_samples": 5},
            "model": {"name": "cnn", "width": 0.125},
            "local": {"optimizer": OPTIMISERS[optimizer], **local},
            "participation": 0.75,
            "rounds": 3,
            "evaluate": {"every": 10, "test_last": 0},
            "engine": engine,
            **changes,
        }
    )


def train(description):
    """Everything that is left after the rounds of an experiment, and the engine that ran them."""
    federation = Federation(description)
    start = federation.server.model
    with federation.open() as runner:
        for _ in range(description.rounds):
            federation.advance(runner)
    federation.close()
    clients, _ = federation.client_states.index()
    left = {
        f"{client} {name}": value
        for client in sorted(clients.tolist())
        for name, value in federation.client_states[client].items()
    }
    return {"model": federation.server.model, **left}, runner, start


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


@pytest.mark.parametrize(
    ("optimizer", "state"), [*((name, "kept") for name in OPTIMISERS), ("sgd", "fresh"), ("adamp", "fresh")]
)
def test_serial_and_threads_are_bit_identical(optimizer, state):
    local = {"optimizer_state": state, "schedule": COSINE}
    reference, _, _ = train(experiment(optimizer, local=local))
    assert (len(reference) > 1) == (state == "kept")
    assert_same(train(experiment(optimizer, THREADS, local=local))[0], reference)


@pytest.mark.parametrize(
    ("optimizer", "changes"),
    [("sgd", {}), ("sgd", {"steps": 5}), ("adam", {}), ("adamw", {"steps": 5}), ("rmsgd", {})],
)
def test_vmap_agrees_with_serial(optimizer, changes):
    """With kept states, and rates that differ from row to row as some clients are in a later epoch."""
    local = {"optimizer_state": "kept", "schedule": HALVES, **changes}
    # Adam divides by the size of a gradient: where that is nothing but rounding, engines don't agree.
    part = {"optimizer": {**OPTIMISERS[optimizer], "eps": 1e-3}} if "adam" in optimizer else {}
    reference, _, start = train(experiment(optimizer, local={**local, **part}))
    found, runner, _ = train(experiment(optimizer, VMAP, local={**local, **part}))
    assert type(runner.engine).name == "vmap"
    change = float((reference["model"] - start).norm())
    assert float((found["model"] - reference["model"]).norm()) < 1e-3 * change
    assert found.keys() == reference.keys()
    for name, value in reference.items():
        assert float((found[name] - value).norm()) <= 1e-2 * float(value.norm()) + 1e-6, name


class Normed(Optimizer):
    """A step of a given length: not elementwise, but a function of tensors that vmap can run."""

    def step(self, parameters, gradient, state, lr, decay):
        parameters.sub_(lr * gradient / gradient.norm())


def test_vmap_runs_steps_that_are_not_elementwise():
    local = {"optimizer": "test_optimisers:Normed", "schedule": HALVES}
    reference, _, start = train(experiment("sgd", local=local))
    found, runner, _ = train(experiment("sgd", VMAP, local=local))
    assert type(runner.engine).name == "vmap"
    change = float((reference["model"] - start).norm())
    assert float((found["model"] - reference["model"]).norm()) < 1e-3 * change


def test_what_vmap_cannot_run_trains_client_by_client_and_says_so(tmp_path):
    reference, _, _ = train(experiment("adamp"))
    found, runner, _ = train(experiment("adamp", VMAP))
    assert_same(found, reference)
    assert type(runner.engine).name in {"serial", "threads"}
    assert runner.why == "vmap can't run the optimizer 'adamp', whose clients train one by one"
    run = mnemos.run(experiment("adamp", VMAP, rounds=1), out=tmp_path)
    record = json.loads(run.file("engine.json").read_text())
    assert record["engine"] == runner.engine.dump()
    assert record["why"] == runner.why
    assert not record["arithmetic"]["vmap"]


@pytest.mark.parametrize(("optimizer", "tried"), [("adamp", False), ("adam", True)])
def test_auto_tries_vmap_only_for_optimisers_that_it_can_run(optimizer, tried, tmp_path, monkeypatch):
    monkeypatch.setenv("MNEMOS_CACHE", str(tmp_path))
    monkeypatch.setattr("mnemos.engines.auto.LARGE", math.inf)  # however slow the machine is
    federation = Federation(experiment(optimizer, "auto"))
    with federation.open() as runner:
        federation.advance(runner)
        assert ("vmap" in runner.why) == tried
    federation.close()


@pytest.mark.parametrize(
    ("optimizer", "engine"), [("sgd", "vmap"), ("adam", "vmap"), ("rmsgd", "serial"), ("adamp", THREADS)]
)
def test_a_kept_state_matters_and_an_interruption_leaves_no_trace(optimizer, engine, tmp_path):
    local = {"optimizer_state": "kept", "schedule": "cosine"}
    description = experiment(optimizer, engine, local=local, method="scaffold")
    whole = mnemos.run(description, out=tmp_path / "whole")
    fresh = mnemos.run(description, {"local.optimizer_state": "fresh"}, out=tmp_path / "fresh")
    observer = Stop(2)
    with pytest.raises(KeyboardInterrupt):
        mnemos.run(description, out=tmp_path / "part", observer=observer)
    part = resume(observer.run.path)
    for name in ("metrics.jsonl", "model.safetensors"):
        assert part.file(name).read_bytes() == whole.file(name).read_bytes()
    assert fresh.file("model.safetensors").read_bytes() != whole.file("model.safetensors").read_bytes()


def test_a_kept_state_travels_in_messages():
    """A client's round from bytes to bytes, with a state from an earlier round; the task stays as it was."""
    federation = Federation(experiment("adamp", local={"optimizer_state": "kept"}, participation=1.0))
    with federation.open() as runner:
        federation.advance(runner)
        task = next(iter(federation.requests(2, runner)))
        before = {name: value.clone() for name, value in task.state.items()}
        update = next(iter(runner.run([task])))
    federation.close()
    assert_same(task.state, before)
    again = reply_from_bytes(train_message(task.to_bytes()))
    assert torch.equal(again.delta, update.delta)
    assert_same(again.state, update.state)
    assert float(update.state["optimizer./step"]) > float(task.state["optimizer./step"]) > 0
