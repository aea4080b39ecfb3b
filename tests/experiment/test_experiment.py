"""Experiments: defaults, YAML in and out, hashes, dotted overrides, and parts by name or import path."""

from __future__ import annotations

import json
import operator
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from mnemos.common.registry import Part, Registry
from mnemos.data.dataset import sources
from mnemos.data.partition import Partition, partitions
from mnemos.data.partitions.dirichlet import Dirichlet
from mnemos.data.partitions.iid import Iid
from mnemos.data.stream import Stream
from mnemos.data.streams.static import Static, Still
from mnemos.engines.engine import engines
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment, load_experiment
from mnemos.experiment.overrides import merge, parse_overrides, parse_yaml, read_yaml
from mnemos.measures.measure import measures
from mnemos.methods.method import methods
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.methods.weightings.samples import Samples
from mnemos.methods.weightings.uniform import Uniform
from mnemos.models.mlp import MLP
from mnemos.models.model import models
from mnemos.objectives.objective import Objective
from mnemos.selection import Selection, UniformSelection, selections

# --- parts outside Mnemos -----------------------------------------------------------------------------


class Halves(Partition):
    """The first clients hold the even samples, the others the odd ones."""

    swap: bool = False

    def assign(self, labels, owners, rng):
        order = np.argsort((np.arange(len(labels)) + self.swap) % 2, kind="stable")
        return order, np.linspace(0, len(labels), self.clients + 1).astype(np.int64)


class OwnStream(Stream):
    """The same as `static`."""

    def open(self, setting):
        return Still(setting)


class FirstOnes(Selection):
    """The clients with the smallest numbers."""

    def select(self, eligible, count, rng):
        return np.arange(count) if isinstance(eligible, int) else eligible[:count]


class Scaled(Objective):
    """A loss with an option."""

    scale: float = 1.0

    def __call__(self, logits, labels, counts):
        return self.scale * (logits.logsumexp(1) - logits.gather(1, labels[:, None]).squeeze(1))


class Paced(FedAvg):
    """A method with an option of its own."""

    pace: float = 0.5


class HalfDone(Partition):
    """It lacks `deal`, so it is abstract."""


class SortedIid(Iid):
    """A subclass of a registered part that nobody has registered."""


# --- defaults -----------------------------------------------------------------------------------------


def test_the_defaults_are_a_whole_experiment():
    experiment = Experiment()
    assert experiment == Experiment.parse({}) == load_experiment() == load_experiment({}, {})
    for field in Experiment.model_fields:
        assert not isinstance(getattr(experiment, field), str), f"{field} is still a name"
    assert type(experiment.data) is sources["digits"]
    assert experiment.partition == Dirichlet()
    assert experiment.stream == Static()
    assert experiment.model == MLP()
    assert experiment.method == FedAvg()
    assert experiment.selection == UniformSelection()
    assert experiment.engine == engines.parse("auto")
    assert (experiment.rounds, experiment.seed, experiment.measures) == (50, 0, ())


def test_the_plan_is_what_clients_need():
    experiment = Experiment.parse({"seed": 7, "local": {"lr": 0.5}})
    plan = experiment.plan
    assert (plan.data, plan.model, plan.method) == (experiment.data, experiment.model, experiment.method)
    assert (plan.local, plan.seed) == (experiment.local, 7)


def test_an_experiment_cannot_be_changed():
    experiment = Experiment()
    for owner, field in ((experiment, "rounds"), (experiment.local, "lr"), (experiment.partition, "clients")):
        before = getattr(owner, field)
        with pytest.raises(ValidationError, match="frozen"):
            setattr(owner, field, 3)
        assert getattr(owner, field) == before
    assert isinstance(Experiment.parse({"model": {"hidden": [8, 4]}}).model.hidden, tuple)


def test_an_override_leaves_the_experiment_alone():
    experiment = Experiment()
    changed = experiment.override({"rounds": 3, "local.lr": 0.5, "partition.name": "iid"})
    assert experiment == Experiment()
    assert (changed.rounds, changed.local.lr, type(changed.partition)) == (3, 0.5, Iid)
    assert experiment.override({}) == experiment


def test_loading_leaves_the_given_mapping_alone():
    given = {"partition": {"name": "iid", "clients": 9}, "local": {"lr": 0.5}}
    before = json.loads(json.dumps(given))
    load_experiment(given, {"partition.clients": 4, "local.optimizer.momentum": 0.9, "rounds": 2})
    assert given == before


def test_loading_leaves_the_given_changes_alone():
    part = {"name": "dirichlet"}
    changed = load_experiment({}, {"partition": part, "partition.alpha": 0.5})
    assert changed.partition == Dirichlet(alpha=0.5)
    assert part == {"name": "dirichlet"}


def test_a_measure_can_be_named_once():
    names = ["class-accuracy", "client-accuracy"]
    assert [type(part).name for part in Experiment.parse({"measures": names}).measures] == names
    with pytest.raises(ConfigError, match=r"^measures: found class-accuracy, class-accuracy; each measure"):
        Experiment.parse({"measures": ["class-accuracy", {"name": "class-accuracy"}]})


# --- YAML ---------------------------------------------------------------------------------------------


def again(experiment: Experiment) -> Experiment:
    """The experiment, written to YAML and read."""
    return Experiment.parse(parse_yaml(experiment.to_yaml()))


RICH = {
    "data": {"name": "digits", "test": 0.25},
    "partition": {"name": "test_experiment:Halves", "clients": 7, "swap": True},
    "stream": "test_experiment:OwnStream",
    "model": {"name": "mlp", "hidden": [8, 4], "norm": "batch"},
    "method": {"name": "test_experiment:Paced", "pace": 0.25, "weighting": "uniform"},
    "local": {
        "steps": 3,
        "lr": 1e-7,
        "optimizer": {"name": "sgd", "momentum": 0.9, "nesterov": True},
        "augment": ["flip", {"name": "crop", "pad": 1}],
    },
    "participation": 0.5,
    "selection": "test_experiment:FirstOnes",
    "measures": ["class-accuracy"],
    "engine": {"name": "threads", "workers": 2},
    "seed": 2**63 - 1,
}


@pytest.mark.parametrize("options", [{}, RICH], ids=["defaults", "everything"])
def test_yaml_round_trip(options):
    experiment = Experiment.parse(options)
    assert again(experiment) == experiment
    assert again(experiment).hash() == experiment.hash()
    assert list(parse_yaml(experiment.to_yaml())) == list(Experiment.model_fields)


def test_the_written_yaml_spells_out_every_default():
    written = parse_yaml(Experiment().to_yaml())
    assert written["partition"] == {"name": "dirichlet", "clients": 100, "validation": 0.1, "alpha": 0.1}
    assert written["method"]["weighting"] == {"name": "samples"}
    assert written["local"]["optimizer"] == {"name": "sgd", "momentum": 0.0, "nesterov": False}
    assert written["local"]["steps"] is None


@settings(max_examples=40, deadline=None)
@given(
    lr=st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False),
    decay=st.floats(min_value=0, allow_infinity=False, allow_nan=False),
    participation=st.floats(min_value=0, max_value=1, exclude_min=True),
    seed=st.integers(0, 2**63 - 1),
    hidden=st.lists(st.integers(1, 10**6), max_size=4),
    steps=st.none() | st.integers(1, 10**9),
    partition=st.sampled_from(["iid", {"name": "dirichlet", "alpha": 3}, {"clients": 5, "alpha": 1e-3}]),
    names=st.lists(st.sampled_from(["class-accuracy", "client-accuracy"]), unique=True),
)
def test_yaml_round_trip_of_any_numbers(lr, decay, participation, seed, hidden, steps, partition, names):
    experiment = Experiment.parse(
        {
            "local": {"lr": lr, "weight_decay": decay, "steps": steps},
            "participation": participation,
            "seed": seed,
            "model": {"hidden": hidden},
            "partition": partition,
            "measures": names,
        }
    )
    assert again(experiment) == experiment
    assert again(experiment).hash() == experiment.hash()
    assert experiment.override({}) == experiment


NUMBERS_IN_DISGUISE = ["1e5", "12e4567", "-3e-4", "1.e5"]
TEXTS = ["0x10", "1_0", "null", "~", "yes", "2020-01-01", "1:30", "a: b", " x ", "é", "[1", "1e5x", "'", "#"]


@pytest.mark.parametrize(
    "text",
    [
        *TEXTS,
        *(text for text in NUMBERS_IN_DISGUISE),
    ],
)
def test_yaml_round_trip_of_text_that_looks_like_something_else(text):
    experiment = Experiment.parse({"data": {"name": "npz", "path": text}})
    assert again(experiment).data.path == text


@pytest.mark.parametrize(
    ("text", "number"),
    [("1e-4", 1e-4), ("1E5", 1e5), ("-2e+3", -2e3), ("1.5e3", 1500.0), ("1.e2", 100.0), (".5e-3", 5e-4)],
)
def test_numbers_with_an_exponent_are_numbers(text, number):
    assert parse_yaml(f"lr: {text}") == {"lr": number}
    assert parse_overrides([f"local.lr={text}"]) == {"local.lr": number}


def test_words_that_only_look_like_numbers_stay_words():
    assert parse_yaml("[1e, e4, 1e-4x, '1e4', a1e4]") == ["1e", "e4", "1e-4x", "1e4", "a1e4"]


def test_only_true_and_false_are_truth_values():
    """Measures have a field `on`."""
    assert parse_yaml("{on: off, yes: no, y: n}") == {"on": "off", "yes": "no", "y": "n"}
    assert parse_yaml("[true, False, TRUE, truely]") == [True, False, True, "truely"]
    experiment = Experiment.parse(parse_yaml("measures: [{name: continual, on: validation}]"))
    assert again(experiment) == experiment


def test_an_experiment_from_a_file(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("rounds: 7\nlocal: {lr: 1e-4}\npartition: {name: iid, clients: 9}\n")
    expected = Experiment.parse(
        {"rounds": 7, "local": {"lr": 1e-4}, "partition": {"name": "iid", "clients": 9}}
    )
    assert load_experiment(recipe) == load_experiment(str(recipe)) == expected
    assert load_experiment(recipe, {"rounds": 8}) == expected.override({"rounds": 8})
    assert load_experiment(expected, {"rounds": 8}) == expected.override({"rounds": 8})


def test_a_file_that_is_no_mapping(tmp_path):
    path = tmp_path / "list.yaml"
    path.write_text("[1, 2]")
    with pytest.raises(ConfigError, match="found a list; expected a mapping"):
        read_yaml(path)
    path.write_text("")
    with pytest.raises(ConfigError, match="found nothing; expected a mapping"):
        read_yaml(path)


def test_yaml_makes_no_objects():
    with pytest.raises(yaml.YAMLError):
        parse_yaml("!!python/object/apply:os.getcwd []")


# --- hash ---------------------------------------------------------------------------------------------

CHANGES: dict[str, dict[str, Any]] = {
    "data": {"data.test": 0.3},
    "partition": {"partition.alpha": 0.2},
    "guard": {"guard.most": 20},
    "stream": {"stream": "test_experiment:OwnStream"},
    "model": {"model.hidden": [8]},
    "method": {"method.weighting": "uniform"},
    "local": {"local.lr": 0.06},
    "participation": {"participation": 0.2},
    "selection": {"selection": "test_experiment:FirstOnes"},
    "clock": {"clock": "synchronous"},
    "rounds": {"rounds": 51},
    "evaluate": {"evaluate.every": 11},
    "measures": {"measures": ["class-accuracy"]},
    "faults": {"faults": ["free-riders"]},
    "screens": {"screens": ["free-riders"]},
    "min_clients": {"min_clients": 2},
    "retries": {"retries": 3},
    "privacy": {"privacy": "gaussian"},
    "engine": {"engine.exact": True},
    "seed": {"seed": 1},
    "start": {"start": "fractals"},
    "partition by name": {"partition.name": "label-dirichlet"},
    "local.epochs": {"local.epochs": 2},
    "local.steps": {"local.steps": 1},
    "local.batch": {"local.batch": 63},
    "local.optimizer": {"local.optimizer.momentum": 0.1},
    "local.weight_decay": {"local.weight_decay": 1e-30},
    "local.augment": {"local.augment": ["flip"]},
    "local.schedule": {"local.schedule": "cosine"},
    "local.optimizer_state": {"local.optimizer_state": "kept"},
    "method.meta": {"method.meta": {"samples": 5}},
    "evaluate.test_last": {"evaluate.test_last": 0},
    "checkpoints": {"checkpoints.keep": 3},
}


def test_the_hash_changes_with_every_field():
    assert set(Experiment.model_fields) <= set(CHANGES)
    hashes = {name: Experiment().override(change).hash() for name, change in CHANGES.items()}
    assert len({Experiment().hash(), *hashes.values()}) == 1 + len(CHANGES)
    assert all(len(text) == 12 and int(text, 16) >= 0 for text in hashes.values())


def test_equal_experiments_have_equal_hashes():
    """However they were written: by name or in full, in another order, with 1 for 1.0."""
    plain = Experiment.parse({"partition": {"name": "dirichlet", "alpha": 1.0, "clients": 9}, "rounds": 3})
    for options in (
        {"rounds": 3, "partition": {"clients": 9, "alpha": 1, "name": "dirichlet"}},
        {"rounds": 3, "partition": {"clients": 9, "alpha": 1}, "stream": "static"},
        {"rounds": 3, "partition": Dirichlet(alpha=1, clients=9), "method": {"loss": {"name": "ce"}}},
        {"rounds": "3", "partition": {"clients": "9", "alpha": "1"}, "measures": ()},
    ):
        assert Experiment.parse(options) == plain
        assert Experiment.parse(options).hash() == plain.hash()
    assert Experiment().override({"rounds": 3}).override({"rounds": 50}).hash() == Experiment().hash()


def test_the_hash_is_the_same_in_another_process():
    script = (
        "import json, sys; from mnemos.experiment.experiment import Experiment;"
        "print(*[Experiment.parse(options).hash() for options in json.load(sys.stdin)])"
    )
    listed = [{}, {key: value for key, value in RICH.items() if "test_experiment" not in json.dumps(value)}]
    here = [Experiment.parse(options).hash() for options in listed]
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(listed),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": seed},
        timeout=240,
        check=True,
    )
    assert done.stdout.split() == here


# --- overrides ----------------------------------------------------------------------------------------


def test_words_become_dotted_changes():
    words = ["local.lr=0.05", "model.hidden=[8, 4]", "partition={name: iid}", "a.b==c", "seed=", "rounds=1"]
    assert parse_overrides([*words, "rounds=2"]) == {
        "local.lr": 0.05,
        "model.hidden": [8, 4],
        "partition": {"name": "iid"},
        "a.b": "=c",
        "seed": None,
        "rounds": 2,
    }


def test_nested_fields():
    experiment = load_experiment(
        {}, {"local.optimizer.momentum": 0.9, "local.lr": 0.5, "method.weighting.name": "uniform"}
    )
    assert experiment.local.optimizer.momentum == 0.9
    assert experiment.local.lr == 0.5
    assert experiment.local.batch == Experiment().local.batch
    assert experiment.method == FedAvg(weighting=Uniform())


def test_a_mapping_with_a_name_is_a_whole_part_and_one_without_a_name_sets_what_it_names():
    base = Experiment.parse({"local": {"lr": 0.5, "batch": 8}, "partition": {"name": "iid", "clients": 9}})
    changed = base.override({"local": {"lr": 0.25}, "partition": {"name": "dirichlet"}})
    assert changed.local == Experiment.parse({"local": {"lr": 0.25, "batch": 8}}).local
    assert changed.partition == Dirichlet()
    assert base.override({"partition": {"validation": 0.3}}).partition == Iid(clients=9, validation=0.3)


def test_a_part_by_its_name_alone_replaces_the_part():
    base = Experiment.parse({"partition": {"name": "dirichlet", "clients": 9, "alpha": 1}})
    assert base.override({"partition": "iid"}).partition == Iid()


def test_an_option_of_a_part_that_was_given_by_its_name_alone():
    assert load_experiment({"partition": "iid"}, {"partition.clients": 9}).partition == Iid(clients=9)
    nested = load_experiment({"local": {"optimizer": "sgd"}}, {"local.optimizer.momentum": 0.5})
    assert nested.local.optimizer.momentum == 0.5


def test_options_without_a_name_belong_to_the_default_part():
    by_options = Experiment.parse(
        {"partition": {"clients": 20}, "model": {"hidden": [8]}, "method": {"weighting": "uniform"}}
    )
    assert by_options.partition == Dirichlet(clients=20)
    assert by_options.model == MLP(hidden=(8,))
    assert by_options.method == FedAvg(weighting=Uniform())
    assert Experiment.parse({"engine": {"exact": True}}).engine == engines.parse(
        {"name": "auto", "exact": True}
    )
    assert Experiment.parse({"local": {"optimizer": {"momentum": 0.5}}}).local.optimizer.momentum == 0.5
    assert load_experiment({}, {"partition.clients": 20}) == Experiment.parse({"partition": {"clients": 20}})


@pytest.mark.parametrize("written", ["file", "experiment"])
def test_another_name_keeps_common_options_and_drops_the_others(written):
    base = {"partition": {"name": "dirichlet", "clients": 9, "validation": 0.3, "alpha": 2.0}}
    source = base if written == "file" else Experiment.parse(base)
    assert load_experiment(source, {"partition.name": "iid"}).partition == Iid(clients=9, validation=0.3)
    skewed = load_experiment(source, {"partition.name": "label-dirichlet"}).partition
    assert (type(skewed).name, skewed.clients, skewed.alpha) == ("label-dirichlet", 9, 2.0)


def test_another_method_on_top_of_a_file_that_spells_out_all_parts():
    """A preset must bring its own parts; only what was chosen against the old preset's defaults stays."""
    written = load_experiment({"method": {"name": "fedavg", "loss": "wsm"}}).model_dump(mode="json")
    method = load_experiment(written, {"method.name": "scaffold"}).method
    assert [type(part).name for part in (method.loss, method.correction, method.server)] == [
        "wsm",
        "scaffold",
        "sgd",
    ]
    kept = load_experiment({"method": {"name": "fedavg", "correction": "feddyn"}}).model_dump(mode="json")
    assert type(load_experiment(kept, {"method.name": "fedopt"}).method.correction).name == "feddyn"


def test_another_name_for_a_default_part_drops_what_only_the_default_knows():
    base = {"partition": {"clients": 9, "alpha": 2.0}}
    assert load_experiment(base, {"partition.name": "iid"}).partition == Iid(clients=9)


@pytest.mark.parametrize("order", [1, -1])
def test_options_given_with_the_name_win_in_any_order(order):
    changes = [("partition.name", "label-dirichlet"), ("partition.alpha", 0.7), ("partition.clients", 4)]
    base = {"partition": {"name": "labels", "clients": 9, "validation": 0.3, "labels": 3}}
    found = load_experiment(base, dict(changes[::order])).partition
    assert type(found).name == "label-dirichlet"
    assert (found.alpha, found.clients, found.validation) == (0.7, 4, 0.3)


@pytest.mark.parametrize("order", [1, -1])
def test_an_option_that_the_new_part_lacks_is_refused_not_dropped(order):
    changes = [("partition.name", "iid"), ("partition.alpha", 0.7)]
    with pytest.raises(ConfigError, match=r"^partition\.alpha: unknown field"):
        load_experiment({}, dict(changes[::order]))


@pytest.mark.parametrize("order", [1, -1])
def test_names_of_a_method_and_of_its_loss_both_survive(order):
    changes = [("method.loss.name", "test_experiment:Scaled"), ("method.name", "test_experiment:Paced")]
    base = {"method": {"name": "fedavg", "loss": "ce", "weighting": "uniform"}}
    method = load_experiment(base, dict(changes[::order])).method
    assert method == Paced(loss=Scaled(), weighting=Uniform())
    assert type(method) is Paced
    changes.append(("method.loss.scale", 3))
    assert load_experiment(base, dict(changes[::order])).method.loss == Scaled(scale=3)


def test_another_loss_drops_the_old_one_s_options():
    base = {
        "method": {"name": "test_experiment:Paced", "loss": {"name": "test_experiment:Scaled", "scale": 2}}
    }
    method = load_experiment(base, {"method.loss.name": "ce"}).method
    assert type(method.loss).name == "ce"
    assert type(method) is Paced
    assert load_experiment(base, {"method.name": "fedavg"}).method == FedAvg(loss=Scaled(scale=2))


def test_a_later_change_of_the_same_field_wins():
    assert load_experiment({}, parse_overrides(["rounds=3", "rounds=4"])).rounds == 4
    found = load_experiment({}, {"partition": {"name": "iid", "clients": 5}, "partition.clients": 6})
    assert found.partition == Iid(clients=6)


def test_a_name_that_nobody_knows_is_explained_in_one_sentence():
    with pytest.raises(ConfigError, match=r"^partition: there is no partition 'iidd'; did you mean 'iid'\?"):
        load_experiment({"partition": {"clients": 4, "alpha": 1}}, {"partition.name": "iidd"})


@pytest.mark.parametrize("name", ["rounds.more", "local.lr.x", "local.batch.y.z"])
def test_a_number_has_no_fields(name):
    with pytest.raises(ConfigError, match="has no fields of its own"):
        Experiment(rounds=5, local={"lr": 0.1}).override({name: 1})


def test_a_name_has_no_hundreds_of_fields():
    with pytest.raises(ConfigError, match=r"^found a name of 5000 fields in each other; allowed: 100$"):
        Experiment().override({".".join(["a"] * 5000): 1})


def test_merge_is_plain_data_in_and_out():
    base = {"local": {"lr": 1}, "partition": "iid"}
    merged = merge(base, {"local.batch": 2, "partition.clients": 3}, Experiment)
    assert merged == {"local": {"lr": 1, "batch": 2}, "partition": {"name": "iid", "clients": 3}}
    assert base == {"local": {"lr": 1}, "partition": "iid"}


def test_parts_as_objects_in_a_mapping():
    assert load_experiment({"partition": Iid(clients=5)}).partition == Iid(clients=5)


def test_parts_as_objects_among_the_changes():
    assert load_experiment({}, {"partition": Iid(clients=5)}).partition == Iid(clients=5)
    assert Experiment().override({"partition": Iid(clients=5)}).partition == Iid(clients=5)


# --- errors in one sentence ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rounds": 0}, "rounds: found 0; allowed: ≥ 1"),
        ({"participation": 2}, "participation: found 2; allowed: > 0 and ≤ 1"),
        ({"rounds": "many"}, "rounds: found 'many'; expected a whole number ≥ 1"),
        ({"rounds": 1.5}, "rounds: found 1.5; expected a whole number ≥ 1"),
        ({"local": {"lr": "fast"}}, "local.lr: found 'fast'; expected a number > 0"),
        ({"local": {"lr": float("nan")}}, "local.lr: found nan; expected a finite number > 0"),
        ({"local": 3}, "local: found 3; expected a mapping of fields; allowed: augment, batch, epochs"),
        ({"local": {"lrr": 1}}, "local.lrr: unknown field; did you mean 'lr'? allowed: augment, batch"),
        (
            {"method": {"name": "fedavg", "meta": {"samples": 1, "stepz": 3}}},
            "method.meta.stepz: unknown field; did you mean 'steps'? allowed: lr, samples, steps",
        ),
        (
            {"method": {"weighting": {"name": "blend", "of": [{"weighting": "samples", "shar": 1}]}}},
            "method.weighting.of.0.shar: unknown field; did you mean 'share'?",
        ),
        ({"round": 1}, "round: unknown field; did you mean 'rounds'? allowed: checkpoints, clock, data"),
        ({"stream": {"name": "static", "x": 1}}, "stream.x: unknown field; static has no options"),
        ({"partition": {"alpha": 0}}, "partition.alpha: found 0; allowed: ≥ 1e-09 and ≤ 1e+09"),
        ({"partition": 3}, "partition: found 3; it takes a name or a mapping with 'name' and options"),
        ({"partition": {"name": 3}}, "partition: found the name 3; allowed: dirichlet"),
        ({"model": {"hidden": [4, 0]}}, "model.hidden.1: found 0; allowed: > 0"),
        ({"model": {"hidden": 4}}, "model.hidden: found 4; expected a list"),
        ({"model": {"norm": "bach"}}, "model.norm: found 'bach'; allowed: 'batch'"),
        ({"data": {"name": "npz"}}, "data.path: it has no default and must be given"),
        ({"local": {"optimizer": {"nesterov": True}}}, "local.optimizer: nesterov needs momentum > 0"),
        (
            {"local": {"optimizer": {"momentum": 1}}},
            "local.optimizer.momentum: found 1; allowed: ≥ 0 and < 1",
        ),
        ({"local": {"augment": ["flip", {"name": "crop", "pad": -1}]}}, "local.augment.1.pad: found -1; all"),
        ({"method": {"loss": "xe"}}, "method.loss: there is no loss 'xe'; "),
        ({"measures": ["class-accurac"]}, "measures.0: there is no measure 'class-accurac'; did you mean"),
        ({"rounds": -1, "rouds": 3}, "rouds: unknown field; did you mean 'rounds'?"),
    ],
    ids=str,
)
def test_a_mistake_names_the_field_the_value_and_what_is_allowed(options, sentence):
    with pytest.raises(ConfigError) as caught:
        Experiment.parse(options)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)
    assert caught.value.path == sentence.partition(":")[0]


# --- parts by import path -----------------------------------------------------------------------------


def test_a_part_outside_mnemos_by_import_path():
    experiment = load_experiment({}, {"partition.name": "test_experiment:Halves", "partition.swap": True})
    assert experiment.partition == Halves(clients=100, swap=True)
    assert type(experiment.partition) is Halves
    assert parse_yaml(experiment.to_yaml())["partition"] == {
        "name": "test_experiment:Halves",
        "clients": 100,
        "validation": 0.1,
        "swap": True,
    }
    assert again(experiment) == experiment
    assert "test_experiment:Halves" not in partitions.names()
    back = experiment.override({"partition.name": "iid"})
    assert back.partition == Iid()


def test_options_of_a_part_by_import_path_are_checked():
    with pytest.raises(ConfigError, match=r"^partition\.swop: unknown field; did you mean 'swap'"):
        Experiment.parse({"partition": {"name": "test_experiment:Halves", "swop": True}})


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("test_experiment:Nobody", "can't be found: test_experiment has no 'Nobody'"),
        ("no_such_module:Halves", "can't be imported"),
        ("test_experiment:FirstOnes", "is not a Partition"),
        ("test_experiment:RICH", "is not a Partition"),
        ("test_experiment:HalfDone", "is abstract"),
        ("test_experiment:", "can't be found"),
    ],
)
def test_an_import_path_that_leads_nowhere(path, sentence):
    with pytest.raises(ConfigError, match=f"^partition: .*{sentence}"):
        Experiment.parse({"partition": path})


def test_a_registered_part_keeps_its_name_when_it_is_found_by_import_path(monkeypatch):
    monkeypatch.setattr(Iid, "name", "iid")  # back to what it was, whatever happens here
    before = Experiment.parse({"partition": "iid"}).hash()
    Experiment.parse({"partition": "mnemos.data.partitions.iid:Iid"})
    assert Iid.name == "iid"
    assert Experiment.parse({"partition": "iid"}).hash() == before


def test_a_subclass_that_is_an_object_does_not_pass_for_its_parent():
    """Either it is refused, or it is written so that it can be found again: never replaced in silence."""
    try:
        experiment = Experiment.parse({"partition": SortedIid()})
        copy = experiment.override({})
    except ConfigError:
        return
    assert type(copy.partition) is SortedIid
    assert experiment.hash() != Experiment.parse({"partition": "iid"}).hash()


# --- registries ---------------------------------------------------------------------------------------


class Toy(Part):
    """A kind of part for these tests."""


class Ball(Toy):
    size: int = Field(1, ge=1)


class Kite(Toy):
    pass


@pytest.fixture
def toys() -> Registry[Toy]:
    """A registry whose package is this module, so that nothing else is imported."""
    registry: Registry[Toy] = Registry("toy", Toy, __name__)
    registry.register("kite")(Kite)
    registry.register("ball")(Ball)
    return registry


def test_names_are_sorted_and_iteration_follows_them(toys):
    assert toys.names() == ["ball", "kite"]
    assert list(toys) == [Ball, Kite]
    assert list(toys) == [toys[name] for name in toys.names()]
    assert (Ball.name, Kite.name) == ("ball", "kite")


def test_a_part_from_a_name_a_mapping_or_itself(toys):
    ball = Ball(size=3)
    assert toys.parse("ball") == Ball()
    assert toys.parse({"name": "ball", "size": 3}) == ball
    assert toys.parse(ball) is ball
    assert ball.dump() == {"name": "ball", "size": 3}
    assert toys.parse(ball.dump()) == ball
    options = {"name": "ball", "size": 3}
    toys.parse(options)
    assert options == {"name": "ball", "size": 3}


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("bal", "there is no toy 'bal'; did you mean 'ball'? allowed: ball, kite"),
        ("BALL", "there is no toy 'BALL'; did you mean 'ball'? allowed: ball, kite"),
        ("", "there is no toy ''; allowed: ball, kite"),
        ({"size": 3}, "'name' is missing; allowed: ball, kite"),
        ({"name": "ball", "size": 0}, "size: found 0; allowed: ≥ 1"),
        ({"name": "kite", "size": 0}, "size: unknown field; kite has no options"),
        (["ball"], "found ['ball']; it takes a name or a mapping"),
        (None, "found None; it takes a name or a mapping"),
    ],
    ids=str,
)
def test_a_part_that_is_not_there(toys, value, sentence):
    with pytest.raises(ConfigError) as caught:
        toys.parse(value)
    assert str(caught.value).startswith(sentence)


def test_a_name_cannot_be_given_to_two_classes(toys):
    with pytest.raises(ValueError, match="toy 'ball' is already registered"):
        toys.register("ball")(Kite)
    assert toys["ball"] is Ball
    assert Kite.name == "kite"


def test_a_class_can_be_registered_again_under_its_name(toys):
    assert toys.register("ball")(Ball) is Ball
    assert toys.names() == ["ball", "kite"]


def test_a_name_cannot_be_given_to_a_class_of_another_module_that_is_called_the_same(toys):
    other = types.new_class("Ball", (Toy,), exec_body=lambda body: body.update(__module__="elsewhere"))
    with pytest.raises(ValueError, match="toy 'ball' is already registered"):
        toys.register("ball")(other)
    assert toys["ball"] is Ball


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[Toy]]:
    """A package of three modules of which one is private; the registry is in none of them."""
    folder = tmp_path / "toy_shop"
    folder.mkdir()
    part = (
        "from test_experiment import Toy\nfrom toy_shop import toys\n"
        "@toys.register('{0}')\nclass {0}(Toy):\n    'A toy.'\n"
    )
    (folder / "__init__.py").write_text(
        "from mnemos.common.registry import Registry\nfrom test_experiment import Toy\n"
        "toys = Registry('toy', Toy, 'toy_shop')\n"
    )
    for name in ("train", "doll", "_helper"):
        (folder / f"{name}.py").write_text(part.format(name.strip("_").title()))
    monkeypatch.syspath_prepend(str(tmp_path))
    import toy_shop

    yield toy_shop.toys
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy_shop"]:
        del sys.modules[name]


def test_the_modules_of_a_package_are_imported_at_the_first_question(shop):
    assert not [name for name in sys.modules if name.startswith("toy_shop.")]
    assert shop.names() == ["Doll", "Helper", "Train"]
    assert shop["Doll"].__module__ == "toy_shop.doll"


@pytest.mark.parametrize(
    "registry", [sources, partitions, models, methods, engines, measures, selections], ids=lambda r: r.kind
)
def test_every_registered_part_knows_its_name(registry):
    names = registry.names()
    assert names == sorted(set(names))
    assert [part.name for part in registry] == names
    for part in registry:
        assert issubclass(part, registry.base)
        assert part.__doc__
        try:
            default = part()
        except ValidationError:  # a path that has to be given
            continue
        assert registry.parse(default.dump()) == default


def test_weightings_of_a_method_are_parts_like_any_other():
    assert Experiment.parse({"method": {"weighting": {"name": "samples"}}}).method.weighting == Samples()
    with pytest.raises(ConfigError, match=r"^method\.weighting: there is no weighting 'sampels'; did you"):
        Experiment.parse({"method": {"weighting": "sampels"}})


def test_an_interruption_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can fall anywhere, also into the writing down of a part in a part."""

    def interrupted(_part: Part) -> dict[str, Any]:
        raise KeyboardInterrupt

    experiment = Experiment()
    monkeypatch.setattr(type(experiment.method.loss), "dump", interrupted)
    with pytest.raises(KeyboardInterrupt):
        experiment.hash()


@pytest.mark.parametrize(
    ("guess", "meant"),
    [
        ("lr", "local.lr"),
        ("alpha", "partition.alpha"),
        ("loss", "method.loss"),
        ("device", "engine.device"),
        ("server.lr", "method.server"),
        ("method.temp", "method.head.temperature"),
        ("method.lr", "local.lr"),
        ("batch_size", "local.batch"),
        ("local.alpha", "partition.alpha"),
        ("num_clients", "partition.clients"),
        ("fraction", "participation"),
        ("local_epochs", "local.epochs"),
        ("momentum", "local.optimizer.momentum"),
        ("lr_decay", "local.schedule"),
        ("augment", "local.augment"),
    ],
)
def test_a_likely_guess_leads_to_the_right_field(guess, meant):
    with pytest.raises(ConfigError, match=rf"unknown field; did you mean '{re.escape(meant)}'\?") as caught:
        load_experiment({}, {guess: 1})
    assert str(caught.value).count("did you mean") == 1


def test_every_guess_leads_to_a_field():
    whole = load_experiment({"method": "fedavgm"}).model_dump(mode="json")
    for kind in (Experiment, FedAvg):
        for meant in kind.guesses.values():
            reduce(operator.getitem, meant.split("."), whole)  # a KeyError if there is none
