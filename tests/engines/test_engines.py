"""Every engine runs the same clients to the same result."""

import json
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from mnemos.client.messages import reply_from_bytes, reply_to_bytes
from mnemos.client.trainer import Trainer, train_message
from mnemos.data.dataset import Dataset, Source, Split
from mnemos.engines import auto, beside, trials
from mnemos.engines.auto import Auto
from mnemos.engines.beside import Beside, find
from mnemos.engines.engine import ClientError, Runner
from mnemos.engines.known import compiled_wanted, recall_engine, want_compiled
from mnemos.engines.rows import Rows
from mnemos.engines.serial import Serial
from mnemos.engines.trials import Trial, time_steps
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment, load_experiment
from mnemos.federation.federation import Federation
from support.play import play
from support.processes import script


class Noise(Source):
    """Random images of three classes."""

    shape: tuple[int, ...] = (3, 32, 32)
    count: int = 200

    def load(self):
        generator = torch.Generator().manual_seed(3)
        samples = torch.randint(256, (self.count, *self.shape), generator=generator, dtype=torch.uint8)
        split = Split(samples, torch.randint(3, (self.count,), generator=generator))
        channels = self.shape[0]
        return Dataset("noise", split, split, ("a", "b", "c"), (127.0,) * channels, (74.0,) * channels)


def experiment(engine, **changes):
    return Experiment.parse(
        {
            "data": Noise(),
            "partition": {"name": "quantity", "clients": 6, "validation": 0.0, "min_samples": 9},
            "model": {"name": "cnn", "width": 0.125},
            "local": {"epochs": 2, "batch": 8, "lr": 0.05, "weight_decay": 1e-3},
            "participation": 0.67,
            "rounds": 10,
            "evaluate": {"every": 10, "test_last": 0},
            "engine": engine,
            **changes,
        }
    )


def train(description, rounds):
    federation, outcomes = play(description, rounds)
    return federation.server, outcomes[-1]


def test_serial_and_threads_are_bit_identical_for_lenet():
    model = {"name": "lenet"}
    reference, outcome = train(experiment("serial", model=model), rounds=5)
    for workers in (1, 2, 4):
        engine = {"name": "threads", "workers": workers}
        other, same = train(experiment(engine, model=model), rounds=5)
        assert torch.equal(other.model, reference.model)
        assert torch.equal(other.buffers, reference.buffers)
        assert same.records == outcome.records


IMAGE_NORMS = ["batch", "group", "layer", "instance", "none"]
CASES = [
    *[("cnn", {"width": 0.125, "norm": norm}) for norm in IMAGE_NORMS],
    *[("resnet18", {"width": 0.0625, "norm": norm}) for norm in [*IMAGE_NORMS, "mixed"]],
    ("resnet34", {"width": 0.0625, "norm": "batch"}),
    ("lenet", {}),
    ("logistic", {}),
    *[("mlp", {"hidden": [8], "norm": norm}) for norm in ("batch", "group", "layer", "none")],
]


@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda value: str(value))
def test_vmap_agrees_with_serial(name, options):
    """Unequal clients, so that batches are masked; batch-norm statistics must agree too.

    After one step the *change* of the model agrees to 1e-3 (to 1e-5, as a rule). Later a single ReLU whose
    input is zero but for rounding may fall on either side and change a gradient by some percent, whoever
    computes it; so after five steps the comparison is with the model itself.
    """
    for steps, lr in ((1, 0.05), (5, 0.001)):
        changes = {
            "model": {"name": name, **options},
            "local": {"steps": steps, "batch": 8, "lr": lr, "optimizer": {"name": "sgd", "momentum": 0.5}},
        }
        start = Federation(experiment("serial", **changes)).server.model
        reference, _ = train(experiment("serial", **changes), rounds=1)
        other, _ = train(experiment({"name": "vmap", "chunk": 3}, **changes), rounds=1)
        difference = float((other.model - reference.model).norm())
        if steps == 1:
            assert difference < 1e-3 * float((reference.model - start).norm())
        assert difference < 1e-3 * float(reference.model.norm())
        torch.testing.assert_close(other.buffers, reference.buffers, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    "method",
    [
        {},
        {"loss": "wsm"},
        {"name": "scaffold"},
        {"name": "scaffold", "correction": {"name": "scaffold", "option": "I"}},
        {"name": "fedreg"},
    ],
    ids=str,
)
def test_vmap_has_the_same_bits_on_any_number_of_cores(method, monkeypatch):
    """An MLP's gradients are in closed form, and chunks of clients are trained at a time, one a core."""
    found = []
    for cores in ("1", "3"):
        monkeypatch.setenv("MNEMOS_CORES", cores)
        changes = {"model": {"name": "mlp", "hidden": [8]}, "method": {"name": "fedavg", **method}}
        found.append(train(experiment({"name": "vmap", "chunk": 1}, **changes), rounds=2)[0].model)
    assert torch.equal(*found)


def test_vmap_with_epochs_augmentation_and_feature_noise():
    changes = {
        "partition": {"name": "feature-noise", "clients": 6, "noise": 0.5, "validation": 0.1},
        "local": {"epochs": 2, "batch": 8, "augment": ["crop", "flip", {"name": "cutout", "size": 4}]},
    }
    reference, one = train(experiment("serial", **changes), rounds=2)
    other, two = train(experiment("vmap", **changes), rounds=2)
    torch.testing.assert_close(other.model, reference.model, rtol=1e-3, atol=1e-5)
    assert two.loss == pytest.approx(one.loss, rel=1e-3)


def tasks(description):
    federation = Federation(description)
    with federation.open() as runner:
        found = list(federation.requests(1, runner))
        updates = list(runner.run(found))
    federation.close()
    return found, updates


def test_a_message_in_a_fresh_process_gives_the_same_bytes(tmp_path):
    """One that has computed nothing before."""
    found, updates = tasks(load_experiment({"data": "digits", "engine": {"name": "threads", "workers": 2}}))
    asked, given, program = (tmp_path / name for name in ("asked", "given", "answer.py"))
    program.write_text(
        "import sys; from pathlib import Path; from mnemos.client.trainer import train_message;"
        "Path(sys.argv[2]).write_bytes(train_message(Path(sys.argv[1]).read_bytes()))"
    )
    message = found[2].to_bytes()
    asked.write_bytes(message)
    done = script(program, asked, given, cwd=tmp_path)
    assert done.code == 0, done.err
    assert given.read_bytes() == reply_to_bytes(updates[2])
    assert train_message(message) == given.read_bytes()


def test_messages_survive_the_round_trip():
    found, updates = tasks(experiment("serial", model={"name": "cnn", "width": 0.125, "norm": "batch"}))
    task = found[0]
    again = reply_from_bytes(reply_to_bytes(updates[0]))
    assert torch.equal(again.delta, updates[0].delta)
    assert torch.equal(again.buffers, updates[0].buffers)
    assert (again.client, again.samples, again.steps) == (task.client, len(task.samples), updates[0].steps)


class Broken(nn.Module):
    """Fails in training mode."""

    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(64, classes)

    def forward(self, x):
        if self.training:
            raise ZeroDivisionError("no way")
        return self.layer(x.flatten(1))


@pytest.mark.parametrize("engine", ["serial", "threads"])
def test_an_error_names_client_and_round(engine):
    federation = Federation(load_experiment({"engine": engine, "model": {"name": "logistic"}}))
    (group,) = federation.groups
    group.plan = federation.experiment.override({"model": "test_engines:Broken"}).plan
    with (
        pytest.raises(ClientError, match=r"client \d+ failed in round 1: ZeroDivisionError: no way"),
        federation.open() as runner,
    ):
        federation.advance(runner)
    federation.close()


def _asked(**changes):
    """A federation with vmap, and what its clients are asked in the first round."""
    federation = Federation(load_experiment({"model": "logistic", "engine": "vmap", **changes}))
    runner = federation.open()
    return federation, runner, list(federation.requests(1, runner))


def test_vmap_names_the_client_that_fails_also_alone():
    """The third client of a chunk has a sample that isn't there."""
    federation, runner, requests = _asked(participation=0.5)
    missing = torch.tensor([len(federation.dataset.train)])
    requests[2] = replace(requests[2], samples=torch.cat([requests[2].samples, missing]))
    with pytest.raises(ClientError, match=rf"^client {requests[2].client} failed in round 1: IndexError"):
        list(runner.run(requests))
    federation.close()


def test_vmap_names_all_clients_of_a_chunk_that_fails_as_a_whole(monkeypatch):
    federation, runner, requests = _asked(participation=0.5)
    alone = Rows.steps

    def steps(rows):
        if len(rows.parameters) > 1:
            raise MemoryError("too much")
        return alone(rows)

    monkeypatch.setattr(Rows, "steps", steps)
    clients = ", ".join(str(request.client) for request in requests)
    with pytest.raises(
        ClientError, match=f"^clients {clients} failed together in round 1, .* alone: MemoryError: too much"
    ):
        list(runner.run(requests))
    federation.close()


class Dropping(nn.Module):
    """A model with dropout."""

    def __init__(self, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Dropout(0.5), nn.Linear(16, classes))

    def forward(self, x):
        return self.layers(x)


def test_dropout_is_repeatable_on_threads_and_refused_by_vmap():
    changes = {"model": "test_engines:Dropping", "rounds": 3}
    serial, _ = train(load_experiment({}, {**changes, "engine": "serial"}), 3)
    threads, _ = train(load_experiment({}, {**changes, "engine": {"name": "threads", "workers": 4}}), 3)
    assert torch.equal(serial.model, threads.model)
    with pytest.raises(ConfigError, match="dropout"):
        train(load_experiment({}, {**changes, "engine": "vmap"}), 1)


def test_dropout_masks_differ_between_clients_and_rounds():
    found, _ = tasks(load_experiment({"model": {"name": "test_engines:Dropping"}, "engine": "serial"}))
    trainer = Trainer(found[0].plan, load_dataset())
    first = trainer(found[0]).delta
    assert torch.equal(first, trainer(found[0]).delta)
    assert not torch.equal(first, trainer(found[1]).delta)


def load_dataset():
    return load_experiment({}).data.load()


def test_auto_says_what_it_took_and_remembers_it(tmp_path, monkeypatch):
    monkeypatch.setenv("MNEMOS_CACHE", str(tmp_path))
    federation = Federation(experiment("auto"))
    with federation.open() as runner:
        federation.advance(runner)
        assert type(runner.engine).name in {"threads", "serial", "vmap"}
        assert "ms" in runner.why
        chosen = runner.engine
    assert list(json.loads((tmp_path / "engines.json").read_text()).values()) == [chosen.dump()]
    with federation.open() as runner:
        federation.advance(runner)
        assert runner.engine == chosen
        assert "remembered" in runner.why
    federation.close()


def test_auto_does_not_try_vmap_where_calls_cost_little(tmp_path, monkeypatch):
    """A large model's step takes long by itself, and to time it once more with `vmap` would take minutes."""
    monkeypatch.setenv("MNEMOS_CACHE", str(tmp_path))
    monkeypatch.setattr(auto, "LARGE", 0.0)
    federation = Federation(experiment("auto"))
    with federation.open() as runner:
        federation.advance(runner)
        assert "vmap" not in runner.why
        assert type(runner.engine).name in ("serial", "threads")
    federation.close()


def requests_of(description):
    """The requests of the first round, as an engine gets them."""
    found = []
    federation = Federation(description)
    with federation.open() as runner:
        run = runner.run
        runner.run = lambda cohort: run(found.append(request) or request for request in cohort)
        federation.advance(runner)
    federation.close()
    return found


PUBLIC = {
    "data": "digits",
    "model": {"name": "cnn", "width": 0.125},
    "partition": {"name": "iid", "clients": 6},
    "local": {"steps": 1, "batch": 8},
}
"""Parts that another process can find by their names."""


def test_compiling_is_tried_beside_a_long_run_and_ends_with_it(tmp_path, monkeypatch):
    monkeypatch.setenv("MNEMOS_CACHE", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(auto, "LARGE", 0.0)  # no vmap
    monkeypatch.setattr(auto, "_LONG", 0.0)  # every run is a long one
    federation = Federation(experiment("auto", **PUBLIC))
    with federation.open() as runner:
        federation.advance(runner)  # which doesn't wait for it
        (folder,) = tmp_path.glob("mnemos-beside-*")
        assert len(processes_of(str(folder))) == 1
    federation.close()
    assert not processes_of(str(folder))
    assert not folder.exists()


def processes_of(argument):
    """The processes that have this argument."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            if argument.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize(("seconds", "name"), [(1.0, "threads"), (1000.0, "serial")])
def test_what_was_tried_beside_a_run_is_for_the_next(tmp_path, monkeypatch, seconds, name):
    """Of 100 s for the run's steps compiling saves 90, and so pays if it takes less."""
    monkeypatch.setenv("MNEMOS_CACHE", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(Beside, "_start", lambda *_: None)
    monkeypatch.setattr(torch, "compile", lambda module: module)
    requests = requests_of(experiment("serial", **PUBLIC))
    want_compiled("work")
    Beside("work", Serial(device="cpu"), requests, clients=1, steps=10)

    def times(engine, _runner, _requests):
        return Trial(engine, 1.0, compiling=seconds) if engine.compile else Trial(engine, 10.0)

    monkeypatch.setattr(beside, "time_steps", times)
    (folder,) = tmp_path.glob("mnemos-beside-*")
    assert type(find(folder)).name == name
    assert not folder.exists()
    known = recall_engine("work")
    assert (type(known).name, known.compile) == (name, name == "threads")
    assert not compiled_wanted("work")


def test_a_trial_that_was_not_finished_is_made_beside_the_next_run(tmp_path, monkeypatch):
    monkeypatch.setenv("MNEMOS_CACHE", str(tmp_path))
    monkeypatch.setattr(auto, "LARGE", 0.0)  # no vmap
    monkeypatch.setattr(auto, "_LONG", 0.0)  # every run is a long one
    started = []
    monkeypatch.setattr(Beside, "_start", lambda _self, folder: started.append(folder))
    for _ in range(2):
        train(experiment("auto", **PUBLIC), rounds=1)
    assert len(started) == 2


def test_what_is_tried_beside_a_run_cannot_end_it(tmp_path, monkeypatch):
    monkeypatch.setenv("MNEMOS_CACHE", str(tmp_path))
    monkeypatch.setattr(auto, "LARGE", 0.0)  # no vmap
    monkeypatch.setattr(auto, "_LONG", 0.0)  # every run is a long one
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    server, _ = train(experiment("auto", **PUBLIC), rounds=1)
    assert server.model.isfinite().all()


def test_no_engine_is_taken_from_the_cache_but_the_known_ones(tmp_path, monkeypatch):
    """A compiled one only where there is a compiler; and none that would be imported."""
    monkeypatch.setenv("MNEMOS_CACHE", str(tmp_path))
    kept = {
        "a": {"name": "evil:Engine"},
        "b": {"name": "auto"},
        "c": 7,
        "d": {"name": "serial", "compile": True},
    }
    (tmp_path / "engines.json").write_text(json.dumps(kept))
    assert recall_engine("d") == Serial(compile=True)
    monkeypatch.setenv("CXX", "no-such-compiler")
    for key in kept:
        with pytest.raises(ConfigError):
            recall_engine(key)


def test_a_pass_over_the_data_is_no_part_of_a_step(monkeypatch):
    """A round of n steps takes 2 + 0.1 n seconds: 2 beside the steps, of 4 clients."""
    clock = [0.0]

    class Slow(Runner):
        def run(self, cohort):
            requests = list(cohort)
            clock[0] += (2 + 0.1 * requests[0].plan.local.steps) * len(requests)
            return iter(requests)

    requests = requests_of(experiment("serial"))
    monkeypatch.setattr(trials, "LARGE", 10.0)
    monkeypatch.setattr(trials, "_SLOW", 100.0)
    monkeypatch.setattr(trials.time, "perf_counter", lambda: clock[0])
    found = time_steps(Serial(), Slow(Serial(), requests[0].plan), requests)
    assert (found.step, found.beside, found.alone) == pytest.approx((0.1, 2.0, 2.1))


def test_auto_with_exact_stays_with_the_reference_arithmetic():
    reference, _ = train(experiment("serial"), 2)
    other, _ = train(experiment(Auto(exact=True)), 2)
    assert torch.equal(other.model, reference.model)


def test_a_damaged_memory_of_choices_is_measured_again(tmp_path, monkeypatch):
    monkeypatch.setenv("MNEMOS_CACHE", str(tmp_path))
    (tmp_path / "engines.json").write_text("[1, 2")
    train(experiment("auto"), 1)
    assert json.loads((tmp_path / "engines.json").read_text())


def test_threads_keep_few_updates_in_memory():
    """However large the cohort, at most two tasks a worker are taken before an update is given out."""
    federation = Federation(
        load_experiment({"engine": {"name": "threads", "workers": 2}, "participation": 1})
    )
    taken = 0

    def watched(source):
        nonlocal taken
        for task in source:
            taken += 1
            yield task

    with federation.open() as runner:
        for given, _ in enumerate(runner.run(watched(federation.requests(1, runner)))):
            assert taken <= given + 4
    assert taken == 100
    federation.close()
