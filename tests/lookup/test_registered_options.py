"""What the registries say of their parts."""

import re
import shlex

import pytest

from mnemos.cli.options import data_changes
from mnemos.experiment.experiment import Experiment, load_experiment
from mnemos.experiment.overrides import parse_overrides
from mnemos.lookup.index import registries
from mnemos.lookup.kinds import KINDS, kind_of
from mnemos.lookup.registered import options_of

SHORTCUTS = {
    "--method": "method.name",
    "--loss": "method.loss.name",
    "--model": "model.name",
    "--engine": "engine.name",
}


@pytest.fixture(scope="module")
def index():
    return registries()


def without_description(options, where):
    for option in options:
        if not option.description:
            yield f"{where}.{option.name}"
        yield from without_description(option.options, f"{where}.{option.name}")


def test_every_option_has_a_description(index):
    missing = [
        name for part in index.parts for name in without_description(part.options, f"{part.kind}/{part.name}")
    ]
    assert [*missing, *without_description(index.fields, "experiment")] == []


def test_every_part_has_a_line_of_words(index):
    assert [part.name for part in index.parts if not 10 <= len(part.line) <= 200] == []
    # A reader of a list wants words; the formula follows in the text.
    losses = [part.line for part in index.parts if part.kind == "losses"]
    assert all(re.match(r"[A-Z][a-z-]+", line) for line in losses)


def test_names_of_kinds_are_those_of_the_registries():
    assert {kind.load().plural for kind in KINDS.values()} == set(KINDS)
    assert {kind.load().kind for kind in KINDS.values()} == {kind.one for kind in KINDS.values()}


@pytest.mark.parametrize(
    ("word", "name"),
    [("losses", "losses"), ("loss", "losses"), ("server step", "server-steps"), ("optimisers", "optimizers")],
)
def test_a_kind_has_several_names(word, name):
    assert kind_of(word).name == name


def test_options_are_read_from_the_class():
    options = {option.name: option for option in options_of(Experiment)}
    assert options["participation"].takes == "number > 0 and ≤ 1"
    assert options["participation"].default == 0.1
    assert options["method"].kind == "methods"
    assert options["measures"].takes == "list of measure"
    local = {option.name: option for option in options["local"].options}
    assert local["precision"].choices == ("float32", "bf16", "tf32")
    assert local["steps"].takes == "whole number ≥ 1 or null"


def test_a_preset_shows_its_own_defaults(index):
    (fedavgm,) = (part for part in index.parts if part.name == "fedavgm")
    (server,) = (option for option in fedavgm.options if option.name == "server")
    assert server.default == {"name": "sgd", "momentum": 0.9}
    assert server.description == "how the aggregate becomes the next model"  # inherited from FedAvg


def test_examples_are_read_as_experiments(index):
    """Data sources of your own files name files that aren't there: they are read, and not loaded."""
    for part in index.parts:
        words = shlex.split(part.example)
        if words[1] == "federate" or part.kind == "sinks" or part.name == "folder":
            continue
        assert words[:2] == ["mnemos", "run"]
        changes, overrides, rest = {}, [], iter(words[2:])
        for word in rest:
            if word == "--data":
                changes |= data_changes(next(rest))
            elif word.startswith("--"):
                changes[SHORTCUTS[word]] = next(rest)
            else:
                overrides.append(word)
        load_experiment(None, {**changes, **parse_overrides(overrides)})
