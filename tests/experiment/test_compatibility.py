"""What goes with what: every row can be met, and a part of one's own is judged by its flags alone."""

import ast
import re
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from mnemos.client.trainer import fresh_model
from mnemos.clocks.clock import Clock, Timed, clocks
from mnemos.data.dataset import Dataset, Source, Split
from mnemos.data.load import load
from mnemos.data.partition import Partition
from mnemos.data.stream import Stream, streams
from mnemos.data.streams.static import Still
from mnemos.engines.engine import engines
from mnemos.errors import ConfigError
from mnemos.experiment.compatibility import cautions, training
from mnemos.experiment.compatibility.asynchronous import ASYNCHRONOUS
from mnemos.experiment.compatibility.check import IMPORTED, TABLES, check_experiment
from mnemos.experiment.compatibility.faults import FAULTS
from mnemos.experiment.compatibility.learners import CENTRALISED, GRADIENTS, MIXED, PEERS
from mnemos.experiment.compatibility.owners import LOCAL, REMOTE
from mnemos.experiment.compatibility.private import PRIVATE
from mnemos.experiment.compatibility.row import errors
from mnemos.experiment.compatibility.setup import Setup
from mnemos.experiment.experiment import Experiment, read_experiment
from mnemos.faults.fault import Fault, faults
from mnemos.federation.assembly import flow_of
from mnemos.measures.measure import Measure, measures
from mnemos.methods.method import methods
from mnemos.methods.presets.fedavg import Uniform
from mnemos.models.model import models
from mnemos.privacy.gaussian import SECRET
from mnemos.screens.screen import screens
from mnemos.selection import Selection, selections
from mnemos.selection import UniformSelection as WithoutReplacement

ELSEWHERE = {
    "name": "elsewhere",
    "shape": [4],
    "kind": "float32",
    "classes": ["0", "1"],
    "mean": [0.0] * 4,
    "std": [1.0] * 4,
    "owners": [{"owner": name, "train": 10} for name in "abcd"],
}
OWNERS = {"data": ELSEWHERE, "partition": "natural", "engine": "flower"}
EQUAL = {"name": "fedavg", "weighting": "uniform"}
NOISE = {"privacy": "gaussian", "method": EQUAL}
SECRETLY = {**OWNERS, "method": EQUAL, "privacy": {"name": "gaussian", "secret": True}}
TWO = {"name": "mixed", "of": [{"model": "mlp"}, {"model": "logistic"}]}
PEER = {"model": {**TWO, "peers": True}}
ASYNC = {"clock": "asynchronous"}
FEDASYNC = {"clock": "fedasync"}
TWICE = {"clock": f"{__name__}:Twice"}


def fedavg(**parts):
    return {"name": "fedavg", **parts}


BROKEN = {
    "IMPORTED": (
        IMPORTED,
        [({"model": "somewhere.else:Model"}, "its code was only looked at")],
    ),
    "ASYNCHRONOUS": (
        ASYNCHRONOUS,
        [
            ({**ASYNC, "model": TWO}, "model: found mixed; an asynchronous clock"),
            (
                {**ASYNC, "stream": {"name": "tasks", "advance": "lazy"}},
                "stream.advance: found lazy, which depends on the cohorts of synchronous rounds; allowed "
                "with this clock: clock",
            ),
            ({**ASYNC, "method": "feder"}, "method.weighting: found effective-rank, which needs clients"),
            ({**ASYNC, "method": "feddyn"}, "method: found feddyn, made for clients"),
            ({**FEDASYNC, "method": "fednova"}, "clock.applies: found model, which the server step fednova"),
            ({**FEDASYNC, "method": "uga"}, "clock.applies: found model, but with correction"),
            ({**ASYNC, "selection": "poisson"}, "selection: found poisson, which doesn't say how many"),
            ({**ASYNC, "screens": ["free-riders"]}, "screens: found free-riders, made for clients"),
            ({**ASYNC, "faults": ["free-riders"]}, "faults: found free riders, who pass for clients"),
            ({**ASYNC, "faults": ["collusion"]}, "faults: found clients that know the updates of a round"),
            ({**ASYNC, "evaluate": {"forgetting": 1}}, "evaluate.forgetting: found a measure which needs"),
            ({**ASYNC, "measures": ["task-forgetting"]}, "measures.task-forgetting: found a measure which"),
            ({**ASYNC, "min_clients": 2}, "min_clients: found 2; an asynchronous server"),
        ],
    ),
    "LOCAL": (LOCAL, [({"engine": "flower"}, "engine: found flower, which is for data that stays")]),
    "REMOTE": (
        REMOTE,
        [
            (
                {**OWNERS, "engine": {"name": "flower", "deadline": 60}},
                "engine.deadline: found 60, and fedavg's clients have to be through; allowed with the server "
                "step fednova or the term proximal",
            ),
            (
                {**OWNERS, "engine": "serial"},
                "engine: found serial, and the data is with its owners; allowed: flower",
            ),
            ({**OWNERS, "partition": "iid"}, "partition: each owner is a client: it takes natural"),
            ({**OWNERS, "model": TWO}, "model: found mixed; owners share one model"),
            ({**OWNERS, **ASYNC}, "clock: found an asynchronous one"),
            ({**OWNERS, "clock": {"name": "synchronous", "deadline": 3}}, "clock: found a deadline or"),
            ({**OWNERS, **TWICE}, "clock: found .*:Twice, which changes how a round proceeds; owners"),
            ({**OWNERS, "checkpoints": {"keep": 2}}, "checkpoints.keep: found 2; owners keep what"),
            ({**OWNERS, "faults": [{"name": "drop-outs", "rate": 0.5}]}, "faults: found some"),
            ({**OWNERS, "stream": "drift"}, "stream: found drift, which is a simulation's"),
            ({**OWNERS, "method": "centralised"}, "method: found centralised, which takes everybody's"),
            ({**OWNERS, "method": fedavg(meta={"samples": 5})}, "method.meta: the server of a federation"),
            ({**OWNERS, "measures": ["backdoor"]}, "measures: found backdoor, which needs single labels"),
        ],
    ),
    "PRIVATE": (
        PRIVATE,
        [
            ({**NOISE, "method": "centralised"}, "method: found centralised, which has no clients"),
            ({**NOISE, "model": TWO}, "model: found mixed; privacy is for one model"),
            ({**NOISE, **FEDASYNC}, "clock: found fedasync, under which .* privacy: rounds, synchronous$"),
            ({**NOISE, **TWICE}, "clock: found .*:Twice, which changes how a round proceeds, and ε"),
            (
                {**NOISE, "clock": {"name": "synchronous", "over_selection": 0.5}},
                "clock.over_selection: found some: one client's speed",
            ),
            ({**NOISE, "method": "fedavg"}, "method.weighting: found samples, .* with privacy: uniform$"),
            ({**NOISE, "method": {**EQUAL, "rule": "median"}}, "method.rule: found median, .*: mean$"),
            ({**NOISE, "method": {**EQUAL, "server": "gma"}}, "method.server: found gma, which has a mean"),
            ({**NOISE, "screens": ["norms"]}, "screens: found some, which compare clients"),
            ({**SECRETLY, "privacy": "gaussian"}, "privacy.secret: found false"),
            ({**SECRETLY, "evaluate": {"forgetting": 1}}, "evaluate.forgetting: found some, for which"),
            ({**SECRETLY, "measures": ["task-forgetting"]}, "measures: found task-forgetting, for which"),
            ({**NOISE, "selection": "available"}, "selection: found available, .*: poisson, uniform$"),
        ],
    ),
    "CENTRALISED": (
        CENTRALISED,
        [
            ({"method": "centralised", "clock": "synchronous"}, "clock: it times clients, and centralised"),
            ({"method": "centralised", "faults": ["free-riders"]}, "faults: they are clients', and central"),
        ],
    ),
    "MIXED": (
        MIXED,
        [
            ({"model": TWO, "start": {"name": "file", "path": "x"}}, "start: an encoder is one model's"),
            ({"model": TWO, "evaluate": {"forgetting": 1}}, "evaluate.forgetting: forgetting compares"),
            ({"model": TWO, "measures": ["task-forgetting"]}, "measures.task-forgetting: forgetting comp"),
            ({"model": TWO, "measures": ["ledger"]}, "measures.ledger: it follows the one model of a server"),
        ],
    ),
    "PEERS": (
        PEERS,
        [
            ({**PEER, "method": fedavg(rule="median")}, "method.rule: found median; it takes a server"),
            ({**PEER, "method": "scaffold"}, "method: found scaffold; it takes a server"),
            ({**PEER, "method": fedavg(server="mix")}, "method.server: found mix; it takes a server"),
            ({**PEER, "method": fedavg(weighting="label-owners")}, "method.weighting: found label-owners;"),
            ({**PEER, "method": fedavg(meta={"samples": 9})}, "method.meta: found a meta step; it takes"),
            ({**PEER, "method": fedavg(buffers="server")}, "method.buffers: found server; it takes"),
            ({**PEER, "screens": ["norms"]}, "screens: found screens; it takes a server"),
            ({**PEER, "faults": ["attack"]}, "faults: found attack; it takes a server"),
        ],
    ),
    "GRADIENTS": (
        GRADIENTS,
        [
            (
                {"method": "uga", "evaluate": {"forgetting": 1}},
                "evaluate.forgetting: found some, which is measured on clients' models, and with correction "
                "keep-trace clients send none; allowed: 0$",
            ),
            (
                {"method": "uga", "measures": [{"name": "effective-rank", "clients": True, "every": 1}]},
                "measures.effective-rank: found a measure of clients' models, and with correction keep-trace",
            ),
            (
                {"method": {"name": "uga", "weighting": "effective-rank"}},
                "method: found effective-rank, made for clients that send a change of their model, and with "
                "correction keep-trace they send none",
            ),
        ],
    ),
    "FAULTS": (
        FAULTS,
        [
            ({"method": "fedcurv", "faults": ["free-riders"]}, "faults: curvature passes over a client's"),
            ({"faults": ["attack", "backdoor"]}, "faults: found attack and backdoor, which are the same"),
            (
                {"faults": ["backdoor"], "measures": [{"name": "backdoor", "target": 3}]},
                "measures.backdoor: target and size differ",
            ),
        ],
    ),
}


def cases(tables):
    """(row, case) of each; as many cases as rows, in the same order."""
    return [
        pytest.param(table, row, *case, id=f"{name}-{place}")
        for name, (table, given) in tables.items()
        for place, (row, case) in enumerate(zip(table.rows, given, strict=True))
    ]


def test_every_table_is_met():
    assert [table for table, _ in BROKEN.values()] == list(TABLES)


@pytest.mark.parametrize(("table", "row", "changes", "sentence"), cases(BROKEN))
def test_every_row_can_be_met(table, row, changes, sentence, monkeypatch):
    """And it is the first one that is told."""
    monkeypatch.setenv(SECRET, "a" * 32)
    experiment = read_experiment(changes) if table is IMPORTED else Experiment.parse(changes)
    assert table.about(experiment)
    with pytest.raises(ConfigError, match=f"^{sentence}") as caught:
        check_experiment(experiment)
    told = str(caught.value)
    assert told == str(row.apply(experiment))
    assert not set("{}\n") & set(told)


@pytest.mark.parametrize(
    "changes",
    [
        {"method": {"name": "uga", "server": "fednova"}},
        {"method": {"name": "uga", "weighting": {"network-rank": 0.5, "samples": 0.5}}},
        {"method": "uga", "measures": [{"name": "forgetting", "rounds": 1}]},
        {"method": "uga", "measures": ["task-forgetting"]},
    ],
)
def test_what_takes_a_gradient_for_a_model_is_refused(changes):
    with pytest.raises(ConfigError, match="with correction keep-trace"):
        check_experiment(Experiment.parse(changes))


def test_the_ranks_of_the_global_model_go_with_gradients():
    check_experiment(Experiment.parse({"method": "uga", "measures": ["effective-rank"]}))


def test_a_secret_that_is_missing_shows_before_anything_is_loaded(monkeypatch):
    monkeypatch.delenv(SECRET, raising=False)
    with pytest.raises(ConfigError, match=r"^privacy.secret: .* isn't set"):
        check_experiment(Experiment.parse(SECRETLY))


# --- with data and a model ---------------------------------------------------------------------------

NORM = {"name": "mlp", "hidden": [4], "norm": "batch"}
WSM = {"model": NORM, "method": fedavg(loss="wsm")}
SMALL = {
    "partition": {"name": "iid", "clients": 6},
    "model": {"name": "mlp", "hidden": [4]},
    "participation": 0.5,
    "rounds": 2,
}


class Some(Partition):
    """The first two clients hold nothing."""

    def assign(self, labels, owners, rng):
        ends = np.linspace(0, len(labels), self.clients - 1).astype(np.int64)
        return np.arange(len(labels)), np.concatenate([[0, 0], ends])


class Vectors(Source):
    """Forty samples without a shape."""

    def load(self):
        split = Split(torch.rand(40, 4), torch.arange(40) % 2)
        return Dataset("vectors", split, split, ("a", "b"), (0.0,) * 4, (1.0,) * 4)


def setup(changes, members=None):
    """Of the first clients of an experiment, or all; the others have no model."""
    experiment = Experiment.parse({**SMALL, **changes})
    dataset = load(experiment.data)
    flow, module = flow_of(experiment, dataset), fresh_model(experiment.plan, dataset)
    clients = np.arange(members or flow.assignment.clients)
    return Setup(experiment, experiment.plan.local, dataset, flow, module, clients, 3)


SOME = {"name": f"{__name__}:Some", "clients": 6}
UNTRAINABLE = {
    "MEMBERS": (training.MEMBERS, [({"partition": SOME}, r"model: none of the 2 client\(s\)")]),
    "UPLOADS": (
        training.UPLOADS,
        [
            ({**NOISE, "method": {**EQUAL, "correction": "scaffold"}}, "method: found scaffold, with which"),
            (
                {**NOISE, "model": NORM},
                "method.buffers: found average: clients would send 'body.2.running_mean' and .*: leave-out, "
                "server, or a model without$",
            ),
        ],
    ),
    "SAMPLES": (
        training.SAMPLES,
        [
            (
                {"data": f"{__name__}:Vectors", "local": {"augment": ["flip"]}},
                r"local.augment: vectors has no images but vectors of \(4,\)",
            ),
            (
                {"data": "messages", "model": "text", "method": "fedreg"},
                "method: found fedreg, which changes the numbers of samples a little, and messages has texts",
            ),
            (
                {"data": "messages", "model": "text", "partition": {"name": "feature-noise", "clients": 4}},
                "partition.name: found feature-noise, which adds noise .*, and messages has texts",
            ),
            (
                {"partition": {"name": "iid", "validation": 0}, "evaluate": {"forgetting": 1}},
                "evaluate.forgetting: forgetting is measured on validation data",
            ),
        ],
    ),
    "BATCH_NORM": (
        training.BATCH_NORM,
        [
            ({"model": NORM, "local": {"batch": 1}}, "local.batch: found 1"),
            ({"model": NORM, "method": fedavg(meta={"samples": 1})}, "method.meta.samples: found 1"),
            (
                {
                    "model": {**TWO, "of": [{"model": NORM}, {"model": NORM}], "exchange": {"samples": 1}},
                    "method": fedavg(buffers="leave-out"),
                },
                "model.exchange.samples: found 1",
            ),
            ({"model": NORM, "partition": {"name": "iid", "clients": 1437}}, "partition: client .* has one"),
        ],
    ),
}
HURT = {
    "NORMED": (
        cautions.NORMED,
        [
            (
                {"model": NORM, "partition": {"name": "shards", "clients": 6}},
                "batch-norm with plain cross-entropy",
            ),
            ({**WSM, "method": fedavg(loss="wsm", buffers="server")}, "method.buffers=server never updates"),
            ({**WSM, "method": fedavg(loss="wsm", server="mix")}, "the server moves models with ρ = 0.5 and"),
            (
                {**WSM, "method": {"name": "fedcurv", "loss": "wsm", "buffers": "leave-out"}},
                "curvature passes over .* method.buffers=leave-out never renews$",
            ),
        ],
    ),
    "ASKED": (
        cautions.ASKED,
        [
            ({"method": fedavg(loss="task-ce")}, "method.loss=task-ce leaves out the classes of tasks"),
            ({"guard": {"enabled": False}}, "guard.enabled=false: nothing keeps"),
            ({"participation": 0.001}, "participation=0.001 of .* is less than one client: one is taken"),
            (
                {"participation": 0.2, "evaluate": {"forgetting": [1]}},
                "forgetting compares .* participation=0.2 a round has one: .* participation=0.34 has two",
            ),
            ({"evaluate": {"forgetting": [3]}}, "evaluate.forgetting begins with round 3, and there are 2"),
        ],
    ),
    "EPOCHS": (
        cautions.EPOCHS,
        [
            (
                {"local": {"optimizer": "rmsgd", "optimizer_state": "kept", "steps": 1}},
                "local.steps=1 is less than a pass over the samples of 6 of 6 clients",
            ),
            ({"local": {"optimizer": "rmsgd", "epochs": 1}}, "rmsgd learns at the end of a local epoch"),
        ],
    ),
    "IDLE": (
        cautions.IDLE,
        [
            (
                {"model": {**TWO, "peers": True}, "partition": SOME},
                "model: 2 of the 6 peers that have it hold no training sample",
            )
        ],
    ),
}


@pytest.mark.parametrize(("table", "row", "changes", "sentence"), cases(UNTRAINABLE))
def test_every_row_about_data_and_models_can_be_met(table, row, changes, sentence):
    found = setup(changes, members=2 if table is training.MEMBERS else None)
    assert table.about(found)
    with pytest.raises(ConfigError, match=f"^{sentence}") as caught:
        training.check(found)
    assert str(caught.value) == str(row.apply(found))


@pytest.mark.parametrize(("table", "row", "changes", "sentence"), cases(HURT))
def test_every_warning_can_be_met(table, row, changes, sentence):
    """And nothing else is warned of."""
    found = setup(changes)
    assert table.about(found)
    (told,) = cautions.warnings(found)
    assert re.match(sentence, told)
    assert told == str(row.apply(found))


def test_an_ordinary_setup_is_neither_refused_nor_warned_of():
    found = setup({})
    training.check(found)
    assert list(cautions.warnings(found)) == []


# --- parts of one's own ------------------------------------------------------------------------------


class Sundial(Timed):
    """A clock of one's own."""

    asynchronous: ClassVar[bool] = True


class Punctual(Timed):
    """Another one, which says nothing."""


class Twice(Clock):
    """Rounds of one's own."""

    def protocol(self, usual, groups):
        return usual


class Queue(Stream):
    """A stream whose clients go on when they are selected."""

    follows_cohorts: ClassVar[tuple[str, str, str]] = ("name", "a queue", "static")

    def open(self, setting):
        return Still(setting)


class Comparing(Measure):
    """A measure of clients that were sent the same model."""

    in_step: ClassVar[bool] = True


class Careless(Measure):
    """A measure of anything."""


class Lies(Fault):
    """Clients that send something else."""

    falsifies: ClassVar[bool] = True


class Naps(Fault):
    """Clients that are late."""


class Bounded(Selection):
    """A selection for which a bound on ε is known."""

    private: ClassVar[bool] = True

    def select(self, eligible, count, rng):
        return np.arange(count)


class Favourites(WithoutReplacement):
    """It inherits a promise, and doesn't keep it."""

    def select(self, eligible, count, rng):
        return np.arange(count)


class Fair(Uniform):
    """All count the same."""

    equal: ClassVar[bool] = True


class Unfair(Uniform):
    """It inherits a promise, and doesn't keep it."""


def own(part):
    return f"{__name__}:{part.__name__}"


OWN = [
    ({"clock": own(Punctual), "method": "feder"}, None),
    ({"clock": own(Sundial), "method": "feder"}, "method.weighting: found effective-rank, which needs"),
    ({"clock": own(Sundial)}, None),
    ({**NOISE, "clock": own(Sundial)}, f"clock: found {own(Sundial)}, under which a client's update counts"),
    ({"stream": own(Queue)}, None),
    ({**ASYNC, "stream": own(Queue)}, "stream.name: found a queue, which depends on the cohorts"),
    ({**ASYNC, "measures": [own(Comparing)]}, f"measures.{own(Comparing)}: found a measure which needs"),
    ({**ASYNC, "measures": [own(Careless)]}, None),
    ({"model": TWO, "measures": [own(Comparing)]}, f"measures.{own(Comparing)}: forgetting compares"),
    ({**PEER, "faults": [own(Lies)]}, f"faults: found {own(Lies)}; it takes a server"),
    ({**PEER, "faults": [own(Naps)]}, None),
    ({**NOISE, "selection": own(Bounded)}, None),
    ({**NOISE, "selection": own(Favourites)}, f"selection: found {own(Favourites)}, for whose cohorts no"),
    ({**NOISE, "method": fedavg(weighting=own(Fair))}, None),
    ({**NOISE, "method": fedavg(weighting=own(Unfair))}, f"method.weighting: found {own(Unfair)}, by which"),
]


@pytest.mark.parametrize(("changes", "sentence"), OWN, ids=lambda value: str(value)[:60])
def test_parts_of_ones_own_are_judged_by_their_flags(changes, sentence):
    """No table knows their names."""
    told = [str(error) for error in errors(TABLES, Experiment.parse(changes))]
    assert told == [] if sentence is None else told[0].startswith(sentence)


def test_no_table_asks_for_a_class():
    """Rows ask for flags: nothing in the tables imports a part, or asks whether something is one."""
    folder = Path(cautions.__file__).parent
    parts = {
        kind.__name__
        for registry in (clocks, engines, faults, measures, methods, models, screens, selections, streams)
        for kind in registry
    }
    for path in folder.glob("*.py"):
        tree = ast.parse(path.read_text())
        named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        imported = {
            alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
        }
        assert not parts & imported, path
        assert path.name in {"row.py", "cautions.py"} or "isinstance" not in named, path
