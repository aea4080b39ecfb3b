"""What people write: experiments, studies and recipes in YAML, overrides, sinks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzzing.attempt import Target
from fuzzing.inputs import Inputs, altered, as_json, mutated
from fuzzing.messages import SMALL
from mnemos.experiment.experiment import Experiment, load_experiment
from mnemos.experiment.overrides import dump_yaml, parse_overrides
from mnemos.studies.reproduce.recipe import Recipe
from mnemos.studies.study import Study
from mnemos.track.observe import check

_TAGS = (
    b"&a ",
    b"*a",
    b"<<: *a",
    b"!!int ",
    b"!!float ",
    b"!!bool ",
    b"!!binary ",
    b"!!timestamp ",
    b"!!set ",
    b"!!omap ",
    b"!!pairs ",
    b"!!python/object/apply:os.system ",
    b"? ",
    b"- ",
    b"---\n",
    b"...\n",
    b"%YAML 9\n",
    b"2001-01-01T00:00:00+23:59",
    b"0001-01-01 00:00:00 +23",
    b"1:1:1.5",
    b"0x",
    b"0b",
    b"0o",
    b"~",
    b".inf",
    b"'",
    b"|",
    b">",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\t",
    b"\r",
    b"# ",
    b"1e999",
    b"_",
    b"=",
    b"null",
)

_BOMB = b"a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 12)
)
_MERGE_BOMB = b"a0: &a0 {k: 1}\n" + b"".join(
    b"a%d: &a%d {<<: [%s]}\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 12)
)

NASTY = [
    b"",
    b"\0",
    b"\xff\xfe",
    b"~",
    b"[]",
    b"- a",
    b"a",
    b"a: &a [*a]",
    b"a: &a {b: *a}",
    b"a: {<<: 1}",
    b"a: {<<: *b}",
    b"? [a]\n: b",
    b"? {a: b}\n: c",
    b"1: 2",
    b"~: 2",
    b"2001-01-01: 2",
    b"true: 1",
    b"rounds: 3\nrounds: 4",
    b"!!python/object/apply:os.system ['true']",
    b"a: !!python/name:os.system",
    b"a: !!int ''",
    b"a: !!int _",
    b"a: !!bool x",
    b"a: !!float x",
    b"a: !!float ''",
    b"a: !!timestamp x",
    b"a: !!binary \xc3\xa9",
    b"a: !!omap [1]",
    b"a: !!set {b, c}",
    b"a: !x y",
    b"a: !!str {}",
    b"a: !!map x",
    b"a: !!seq x",
    b"a: !!null {}",
    b"a: !!int {}",
    b"rounds: " + b"9" * 5000,
    b"rounds: 0x" + b"f" * 9000,
    b"rounds: 1" + b":59" * 9000,
    b"rounds: 1" + b":59" * 900 + b".5",
    b"seed: 9223372036854775808",
    b"seed: -1",
    b"rounds: 1e999",
    b"rounds: .nan",
    b"rounds: 2001-01-01",
    b"rounds: 0001-01-01T00:00:00+23:00",
    b"rounds: 9999-12-31T23:59:59-23:00",
    b"a: " + b"{b: " * 900 + b"1" + b"}" * 900,
    b"a: " + b"[" * 200 + b"]" * 200,
    b"a: " * 900,
    b"- " * 900,
    b"? " * 900,
    b"a: \x85 b",
    b"\xef\xbb\xbfrounds: 2",
    b"a: 'b",
    b'a: "\\ud800"',
    b'a: "\\x"',
    b'"\\ud800": 1',
    b'data: {name: "a:b"}',
    b"data: ':'",
    b"data: '.:x'",
    b"model: 'os:path'",
    b'data: "\\0:x"',
    b"data: []",
    b"data: {name: []}",
    b"data: {name: npz, path: ''}",
    b"measures: {a: b}",
    b"faults: [[]]",
    b"partition.clients: 3",
    b"partition: {name: dirichlet, alpha: 1e999}",
    b"local: {lr: -1}",
    b"a.b.c: 1",
    b".: 1",
    _BOMB,
    _MERGE_BOMB,
]
"""YAML that has been somebody's trouble."""


def experiment(folder: Path) -> Target:
    """An experiment file."""
    full = load_experiment(SMALL).model_dump(mode="json")
    rich = load_experiment(
        {
            "data": {"name": "npz", "path": "x.npz"},
            "partition": {"name": "shards", "clients": 9},
            "stream": "tasks",
            "model": {"name": "cnn"},
            "method": {"name": "fedopt", "loss": "wsm"},
            "local": {"augment": ["crop", "flip"], "optimizer": "adam", "steps": 3},
            "evaluate": {"forgetting": [1, 2]},
            "measures": ["rank"],
            "engine": {"name": "threads", "workers": 2},
        }
    ).model_dump(mode="json")
    path = folder / "experiment.yaml"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        found = load_experiment(path)
        path.write_text(found.to_yaml())  # and it can be written down
        assert load_experiment(path).hash() == found.hash()
        assert found.plan

    samples = [dump_yaml(full).encode(), dump_yaml(rich).encode(), b"data: digits\nrounds: 3 # three\n"]
    made = _written(read, [full, rich], samples)
    deep = [b"a: " + b"[" * 5000, b"[" * 900 + b"]" * 900]
    return replace(made, nasty=[*made.nasty, *deep])


def study(folder: Path) -> Target:
    """A study of many experiments."""
    random = {
        "trials": 3,
        "fields": {"local.lr": {"low": 0.01, "high": 1, "log": True}, "model": ["mlp", "lenet"]},
    }
    known: list[Any] = [
        {"base": SMALL, "variants": {"one": {}, "two": {"rounds": 3}}, "seeds": [0, 1]},
        {"base": {}, "grid": {"local.lr": [0.1, 0.2], "method": ["fedavg", "scaffold"]}},
        {"list": [{"rounds": 2}, {"rounds": 3}]},
        {"base": SMALL, "random": random, "seeds": [0]},
    ]
    path = folder / "study.yaml"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        Study.read(path).cases()

    return _written(read, known, [dump_yaml(one).encode() for one in known])


def recipe(folder: Path) -> Target:
    """A recipe for a paper's table, with the files it names."""
    known = {
        "title": "a title",
        "item": "table 1",
        "paper": {"citation": "a citation", "readings": {"one": "A sentence."}},
        "base": SMALL,
        "rows": {"FedAvg": {}, "WSM": {"method.loss": "wsm"}},
        "columns": {"a": {}, "b": {"rounds": 3}},
        "cells": {"WSM/*": {"local.lr": 0.01}},
        "numbers": {"FedAvg": {"a": [0.5, 0.01], "b": "NC"}},
        "reading": ["one", "A sentence."],
    }
    (folder / "base.yaml").write_text(dump_yaml(SMALL))
    path = folder / "recipe.yaml"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        for scale in (1.0, 0.1):
            assert isinstance(Recipe.read(path).of(scale), list)

    words = ["recipe.yaml", "base.yaml", ".", "/", "nothing.yaml"]
    more = [b"extends: recipe.yaml", b"extends: base.yaml", b"base: .", b"extends: 7", b"extends: /dev/null"]
    made = _written(read, [known, {**known, "base": "base.yaml"}], [dump_yaml(known).encode()], words)
    odd: list[dict[str, Any]] = [{"numbers": {"FedAvg": {"a": 10**400}}}, {"a\ud800": 1}]
    odd += [{"base": {"rounds": 10**400}}, {"base": "\0"}, {"paper": "\ud800"}, {"extends": "x" * 5000}]
    more += [as_json({**known, **wrong}) for wrong in odd]
    return replace(made, nasty=[*made.nasty, *more])


def overrides(folder: Path) -> Target:
    """Words of a command line, one a line."""
    words = (
        "local.lr=0.05",
        "partition.alpha=1e-3",
        "method=scaffold",
        "method.server.lr=0.5",
        "engine={name: threads}",
        "data.name=npz",
        "partition.name=iid",
        "partition.clients=20",
        "measures=[rank]",
        "evaluate.forgetting=[1, 2]",
        "model.name=cnn",
        "model.channels=[4, 8]",
        "seed=3",
        "stream=tasks",
        "clock=asynchronous",
        "name=x",
        "local=null",
        "faults=[free-riders]",
        "method.name=fedavg",
        "method.loss.name=wsm",
        "method.loss=ce",
        "start.path=x",
    )

    def read(content: bytes) -> None:
        # As the shell hands over bytes that are no text.
        lines = content.decode("utf-8", "surrogateescape").split("\n")
        found = load_experiment(SMALL, parse_overrides(line for line in lines if line))
        assert isinstance(found.to_yaml(), str)

    name = st.sampled_from(
        [word.partition("=")[0] for word in words] + ["", ".", "a", "local..lr", "data.name.x"]
    )
    value = st.sampled_from(
        [word.partition("=")[2] for word in words] + [text.decode("latin-1") for text in NASTY]
    )
    lines = st.lists(st.builds("{}={}".format, name, value), max_size=4)
    made = lines.map(lambda given: "\n".join(given).encode("utf-8", "surrogatepass"))
    samples = [b"local.lr=0.05\npartition.alpha=1e-3", b"method=scaffold\nseed=3", b"engine={name: threads}"]
    nasty = [b"rounds=" + content.replace(b"\n", b" ") for content in NASTY]
    nasty += [
        b"x",
        b"=",
        b"=1",
        b"rounds",
        b"a" * 9999 + b"=1",
        b"a." * 5000 + b"a=1",
        b"rounds.x=1",
        b"seed=\xff",
    ]
    return Target(read, st.one_of(made, mutated(samples, _TAGS)), samples, nasty)


def sinks(folder: Path) -> Target:
    """Sinks of a command line."""
    samples = [b"csv", b"csv:folder=x", b"wandb:project=x,mode=offline", b"mlflow:uri=x", b"tensorboard"]
    nasty = [
        b"",
        b":",
        b"=",
        b"csv:",
        b"csv:folder",
        b"csv:=",
        b"csv:folder=,,",
        b"a:b:c=d",
        b"csv:folder=\0",
        b"csv:name=csv",
    ]

    def read(content: bytes) -> None:
        check([content.decode("utf-8", "replace")])

    return Target(read, mutated(samples, [b",", b":", b"=", b"name", b"folder"]), samples[:2], nasty)


def _written(
    read: Callable[[bytes], object], known: list[Any], samples: list[bytes], words: list[Any] | None = None
) -> Target:
    """YAML like the known values, by structure and by its signs."""
    parts = [*(words or []), *_names()]
    inputs: list[Inputs] = [altered(value, parts, _yaml) for value in known]
    inputs += [altered(value, parts, as_json) for value in known]
    return Target(read, st.one_of(*inputs, mutated(samples, _TAGS)), samples, NASTY)


def _yaml(value: Any) -> bytes:
    return dump_yaml(json.loads(json.dumps(value))).encode("utf-8", "replace")


def _names() -> list[str]:
    """Names of parts, each of which is wrong in most places."""
    found = {
        "vmap",
        "resnet18",
        "power-law",
        "natural",
        "free-riders",
        "robust",
        "krum",
        "median",
        "file",
        "drift",
    }
    return sorted(found | set(Experiment.model_fields))
